// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sum of squares that is independent of the order of its terms. Squares are added in blocks of 32 neighbours. The blocks' sums
// are added in one integer that is wide enough for every double (Kulisch's long accumulator), so sums of ranks are added without
// rounding.
//
//   Tensor<std::int64_t, Exec> words(device, {2, exact_sum_words});
//   kernels::clear_exact_sums(device, 2, words.data());
//   kernels::exact_squared_norms<float>(device, parts, words.data());
//   std::vector<std::int64_t> host = copy_to_host(words);
//   kernels::carry(host);
//   communicator.all_reduce(host);
//   const double sum = kernels::exact_value(host);

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/part_table.hpp>

namespace weft::kernels {

/// Word i counts multiples of 2^(32 i - 1074). The last word but one counts terms that are not finite; the last word counts such
/// terms among the elements that are not counted.
inline constexpr std::size_t exact_sum_words = 70;
/// The number of neighbours per block; blocks begin at multiples of it.
inline constexpr std::size_t exact_sum_block = 32;

namespace detail {

/// words += x; x must not be negative.
KOKKOS_INLINE_FUNCTION void deposit(std::int64_t* words, double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x), exponent = bits >> 52;
  if (exponent >= 0x7ff) {  // infinite or NaN, of either sign
    ++words[exact_sum_words - 2];
    return;
  }
  if (bits == 0) return;
  const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | (exponent != 0 ? std::uint64_t(1) << 52 : 0),
                      place = exponent != 0 ? exponent - 1 : 0;
  const std::uint64_t word = place / 32, shift = place % 32, low = mantissa << shift;
  words[word] += std::int64_t(low & 0xffffffffu);
  words[word + 1] += std::int64_t(low >> 32);
  if (shift != 0) words[word + 2] += std::int64_t(mantissa >> (64 - shift));
}

/// words += the squares of the elements [i, end) of g, in blocks that begin at indices with `before` + i a multiple of `size`, a
/// power of two.
template <class V, class T>
KOKKOS_FORCEINLINE_FUNCTION void deposit_squares(std::int64_t* words, const T* g, std::size_t i, std::size_t end,
                                                 std::size_t before, std::size_t size = exact_sum_block) {
  while (i < end) {
    const std::size_t block_end = ((before + i) | (size - 1)) + 1 - before;
    const std::size_t stop = block_end < end ? block_end : end;
    V squares = V(accumulate_t<T>(0));
    for (; i + V::size <= stop; i += V::size) {
      const V x = V::load(g + i);
      squares = squares + x * x;
    }
    if (i < stop) {
      const V x = V::load(g + i, stop - i);
      squares = squares + x * x;
      i = stop;
    }
    deposit(words, double(sum(squares)));
  }
}

/// A sum in progress, in one lane of a team.
struct ExactSum {
  std::int64_t words[exact_sum_words] = {};
  KOKKOS_FORCEINLINE_FUNCTION void join(const ExactSum& other) {
    for (std::size_t k = 0; k < exact_sum_words; ++k) words[k] += other.words[k];
  }
};

}  // namespace detail

/// One of the arrays of exact_squared_norms: the elements [skipped, n) of `data`, in blocks that begin at multiples of
/// their size.
template <class T>
struct ExactPart {
  const T* data;
  std::size_t n, skipped;
  std::size_t sum;                      ///< index of the sum to which the squares are added
  std::size_t block = exact_sum_block;  ///< elements of a block, on hosts: 32, or a smaller power of two
  bool operator==(const ExactPart&) const = default;
};

/// Sets `sums` sums to 0; `words` is in device memory.
template <class Exec>
void clear_exact_sums(Device<Exec>& device, std::size_t sums, std::int64_t* words) {
  detail::for_each(
      device, {"gradient_norm", sums * exact_sum_words * sizeof(std::int64_t)}, sums * exact_sum_words,
      KOKKOS_LAMBDA(std::size_t i) { words[i] = 0; });
}

/// words += g[0]^2 + ... + g[n - 1]^2, on hosts. Blocks begin at indices with `first` + i a multiple of `block`, a power of two
/// of 32 at most. Up to 2^30 blocks per rank.
template <class T, class Exec>
requires(detail::on_host<Exec>) void exact_squared_norm(Device<Exec>& device, std::size_t n, std::size_t first, const T* g,
                                                        std::int64_t* words, std::size_t block = exact_sum_block) {
  using V = detail::lanes_for<Exec, T>;
  constexpr std::size_t chunk = 512 * exact_sum_block;
  const std::size_t before = first % exact_sum_block, chunks = (before + n + chunk - 1) / chunk;
  detail::for_each(device, {"gradient_norm", n * sizeof(T)}, chunks, [=](std::size_t c) {
    std::int64_t local[exact_sum_words] = {};
    const std::size_t end = (c + 1) * chunk < before + n ? (c + 1) * chunk - before : n;
    detail::deposit_squares<V>(local, g, c == 0 ? 0 : c * chunk - before, end, before, block);
    for (std::size_t word = 0; word < exact_sum_words; ++word)
      if (local[word] != 0) Kokkos::atomic_add(words + word, local[word]);
  });
}

/// Adds the squares of each part to its sum, at words + sum * exact_sum_words. The bits do not depend on the parts into which
/// blocks of 32 are divided. `words` is in device memory. On devices, one launch for all parts.
template <class T, class Exec>
requires(detail::on_host<Exec>) void exact_squared_norms(Device<Exec>& device, std::span<const ExactPart<T>> parts,
                                                         std::int64_t* words) {
  for (const ExactPart<T>& part : parts)
    exact_squared_norm(device, part.n - part.skipped, part.skipped, part.data + part.skipped, words + part.sum * exact_sum_words,
                       part.block);
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void exact_squared_norms(Device<Exec>& device, std::span<const ExactPart<T>> parts,
                                                          std::int64_t* words) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  const auto& table = device.template cache<detail::PartTables<ExactPart<T>, 512 * exact_sum_block>>().of(device, parts);
  const auto list = table.list();
  detail::for_each_row(
      device, {"gradient_norm", table.elements() * sizeof(T)}, table.pieces(), KOKKOS_LAMBDA(std::size_t row, Team team) {
        const ExactPart<T> part = list.part_of(row);
        const std::size_t begin = list.begin(row), end = list.end(row);
        const auto total = team.template joined<detail::ExactSum>(
            (end - begin + exact_sum_block - 1) / exact_sum_block, [&](std::size_t block, detail::ExactSum& sum) {
              const std::size_t first = begin + block * exact_sum_block;
              const std::size_t stop = first + exact_sum_block < end ? first + exact_sum_block : end;
              detail::deposit_squares<V>(sum.words, part.data, first < part.skipped ? part.skipped : first, stop, 0);
            });
        if (!team.leads()) return;
        for (std::size_t word = 0; word < exact_sum_words; ++word)
          if (total.words[word] != 0) Kokkos::atomic_add(words + part.sum * exact_sum_words + word, total.words[word]);
      });
}

/// Carries, so that every word except the last two is below 2^32, and the words of up to 2^31 ranks can be added.
void carry(std::span<std::int64_t> words);

/// The sum as a double; NaN if a term was not finite.
double exact_value(std::span<std::int64_t> words);

}  // namespace weft::kernels

#ifndef WEFT_COMPILED
#include <weft/kernels/exact_sum_impl.hpp>
#endif
