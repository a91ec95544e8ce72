// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random numbers as a function of an element's global index. A shard of a tensor draws exactly the numbers that the whole tensor
// has at its indices, so initial weights and dropout do not depend on the layout.
//
//   kernels::initialise_normal(device, rows, columns, weight, key, first_row, first_column, row_width, 0.0, 0.02);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <weft/core/philox.hpp>
#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/normal_quantile.hpp>
#include <weft/kernels/detail/philox_lanes.hpp>

namespace weft::kernels {

/// out[r, c] = mean + deviation * Philox::normal(key, (first_row + r) * row_width + first_column + c), rounded once from double.
/// out is [rows, columns], a block of a matrix with row_width columns.
template <class T, class Exec>
void initialise_normal(Device<Exec>& device, std::size_t rows, std::size_t columns, T* out, std::uint64_t key,
                       std::size_t first_row, std::size_t first_column, std::size_t row_width, double mean, double deviation) {
  weft::detail::for_each_entry(
      device, {"initialise", rows * columns * sizeof(T)}, rows, columns, KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        const std::uint64_t index = std::uint64_t(first_row + row) * row_width + first_column + column;
        out[row * columns + column] = T(accumulate_t<T>(mean + deviation * Philox::normal(key, index)));
      });
}

/// initialise_normal with a uniform distribution in [low, high), 24 bits.
template <class T, class Exec>
void initialise_uniform(Device<Exec>& device, std::size_t rows, std::size_t columns, T* out, std::uint64_t key,
                        std::size_t first_row, std::size_t first_column, std::size_t row_width, double low, double high) {
  weft::detail::for_each_entry(
      device, {"initialise", rows * columns * sizeof(T)}, rows, columns, KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        const std::uint64_t index = std::uint64_t(first_row + row) * row_width + first_column + column;
        out[row * columns + column] = T(accumulate_t<T>(low + (high - low) * double(Philox::uniform(key, index))));
      });
}

/// A normal distribution truncated to [low, high].
struct TruncatedNormal {
  double mean = 0, deviation = 1, low = -2, high = 2;
};
/// The same with a truncated normal distribution: the quantile of a uniform number of 32 bits.
template <class T, class Exec>
void initialise_truncated_normal(Device<Exec>& device, std::size_t rows, std::size_t columns, T* out, std::uint64_t key,
                                 std::size_t first_row, std::size_t first_column, std::size_t row_width,
                                 const TruncatedNormal& distribution) {
  const double mean = distribution.mean, deviation = distribution.deviation, low = distribution.low, high = distribution.high;
  const auto below = [&](double x) {
    return deviation == 0 ? double(x >= mean) : std::erfc((mean - x) / deviation * std::sqrt(0.5)) / 2;
  };
  const double first = below(low), share = below(high) - first;
  weft::detail::for_each_entry(
      device, {"initialise", rows * columns * sizeof(T)}, rows, columns, KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        const std::uint64_t index = std::uint64_t(first_row + row) * row_width + first_column + column;
        const double u = (double(Philox::at(key, index)) + 0.5) * 0x1p-32;
        const double value = mean + deviation * detail::normal_quantile(first + share * u);
        out[row * columns + column] = T(accumulate_t<T>(value < low ? low : value > high ? high : value));
      });
}

/// initialise_normal with every element equal to `value`.
template <class T, class Exec>
void initialise_constant(Device<Exec>& device, std::size_t rows, std::size_t columns, T* out, std::uint64_t, std::size_t,
                         std::size_t, std::size_t, double value) {
  weft::detail::for_each_entry(
      device, {"initialise", rows * columns * sizeof(T)}, rows, columns,
      KOKKOS_LAMBDA(std::size_t row, std::size_t column) { out[row * columns + column] = T(accumulate_t<T>(value)); });
}

/// y[r, c] = kept ? x[r, c] / (1 - p) : 0, plus residual[r, c] unless residual is null. Element i = (first_row + r) * row_width +
/// first_column + c is kept if Philox::uniform(key, i) >= p, so the backward is the same call on the gradient. x, y and residual
/// are [rows, columns], contiguous; y may be x or residual. 0 <= p < 1.
template <class T, class Exec>
requires(detail::on_host<Exec>) void dropout(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, T* y,
                                             double p, std::uint64_t key, std::size_t first_row, std::size_t first_column,
                                             std::size_t row_width, const T* residual = nullptr) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr std::size_t piece = 512;  // columns whose words are drawn at once
  const A factor = A(1.0 / (1.0 - p));
  const std::uint32_t threshold = std::uint32_t(p * 0x1p24);
  detail::for_each(device, {"dropout", (residual == nullptr ? 2 : 3) * rows * columns * sizeof(T)}, rows, [=](std::size_t row) {
    std::uint32_t words[piece + 2 * detail::philox_block];
    for (std::size_t column = 0; column < columns; column += piece) {
      const std::size_t here = std::min(piece, columns - column), at = row * columns + column;
      const std::uint64_t index = std::uint64_t(first_row + row) * row_width + first_column + column;
      const std::size_t skipped = index & 3;  // four elements share a draw
      for (std::size_t w = 0; w < here + skipped; w += detail::philox_block)
        detail::philox_words(key, (index >> 2) + w / 4, words + w);
      detail::sweep<V>(here, [&](std::size_t i, std::size_t count) {
        V kept = V::keep(V::load(x + at + i, count) * V(factor), words + skipped + i, threshold);
        if (residual != nullptr) kept = V::load(residual + at + i, count) + kept;
        kept.store(y + at + i, count);
      });
    }
  });
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void dropout(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, T* y,
                                              double p, std::uint64_t key, std::size_t first_row, std::size_t first_column,
                                              std::size_t row_width, const T* residual = nullptr) {
  using A = accumulate_t<T>;
  const A factor = A(1.0 / (1.0 - p));
  const std::uint32_t threshold = std::uint32_t(p * 0x1p24);
  // Four elements share a draw and a thread; the first and the last draw of a row may extend beyond it.
  const std::size_t draws = columns / 4 + 2;
  detail::for_each(
      device, {"dropout", (residual == nullptr ? 2 : 3) * rows * columns * sizeof(T)}, rows * draws,
      KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / draws;
        const std::uint64_t first = std::uint64_t(first_row + row) * row_width + first_column, draw = (first >> 2) + item % draws;
        if (draw * 4 >= first + columns) return;
        const Philox::Words words = Philox::draw(key, draw);
        for (std::size_t k = 0; k < 4; ++k) {
          const std::uint64_t index = draw * 4 + k;
          if (index < first || index >= first + columns) continue;
          const std::size_t at = row * columns + std::size_t(index - first);
          const A kept = (words.word[k] >> 8) >= threshold ? A(x[at]) * factor : A(0);
          y[at] = T(residual == nullptr ? kept : A(residual[at]) + kept);
        }
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
