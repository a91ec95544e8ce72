// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementwise reduction of several buffers, in the order given, into several others: the arithmetic of every collective that weft
// computes itself. One order on every backend means one result, bit for bit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <weft/comm/operation.hpp>

namespace weft::comm {

namespace detail {

using Inputs = std::span<const void* const>;
using Outputs = std::span<void* const>;

template <class T>
struct Line {
  static constexpr std::size_t size = 64 / sizeof(T);
  T values[size];

  static Line load(const T* from) {
    Line line;
    std::memcpy(line.values, static_cast<const void*>(from), sizeof line);
    return line;
  }
  void store(T* to) const { std::memcpy(static_cast<void*>(to), values, sizeof values); }
};

// Loops of constant length over a local block: every compiler vectorises them at -O2, without a test whether the buffers overlap
// (in place they do).
template <class T, std::size_t block>
void sum_block(Inputs inputs, Outputs outputs, std::size_t at, bool average) {
  using A = accumulate_t<T>;
  A sum[block];
  T rounded[block];
  const T* first = static_cast<const T*>(inputs[0]) + at;
  for (std::size_t i = 0; i < block; ++i) sum[i] = A(first[i]);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const T* next = static_cast<const T*>(inputs[k]) + at;
    for (std::size_t i = 0; i < block; ++i) sum[i] += A(next[i]);
  }
  if (average)
    for (std::size_t i = 0; i < block; ++i) sum[i] /= A(inputs.size());
  for (std::size_t i = 0; i < block; ++i) rounded[i] = T(sum[i]);
  for (void* output : outputs) std::memcpy(static_cast<T*>(output) + at, rounded, sizeof rounded);
}

// Sums of two buffers into one or two outputs, for two ranks; the cache lines stay in registers. Eight lines at a time: if both
// addresses fall into one slot of the cache's way predictor (of some AMD processors), alternating between them line by line takes
// 5 times as long.
template <class T, std::size_t... K>
void sum_pair(const T* a, const T* b, T* c, T* d, std::index_sequence<K...>) {  // d may be null
  using A = accumulate_t<T>;
  constexpr std::size_t size = Line<T>::size;
  Line<T> lines[] = {Line<T>::load(a + K * size)...};
  const auto add = [&](Line<T>& line, const T* other) {
    for (std::size_t i = 0; i < size; ++i) line.values[i] = T(A(line.values[i]) + A(other[i]));
  };
  (add(lines[K], b + K * size), ...);
  if (d != nullptr) (lines[K].store(d + K * size), ...);
  (lines[K].store(c + K * size), ...);
}

template <class T>
void sum(Inputs inputs, Outputs outputs, std::size_t begin, std::size_t end, bool average) {
  if constexpr (std::is_same_v<T, float16>) {  // gradients are summed in float: this is for users' own, and stays small
    for (; begin < end; ++begin) sum_block<T, 1>(inputs, outputs, begin, average);
    return;
  } else {
    constexpr std::size_t block = Line<T>::size, lines = 8, step = lines * block;
    if (inputs.size() == 2 && outputs.size() <= 2 && !average) {
      const T *a = static_cast<const T*>(inputs[0]), *b = static_cast<const T*>(inputs[1]);
      T *c = static_cast<T*>(outputs[0]), *d = outputs.size() == 2 ? static_cast<T*>(outputs[1]) : nullptr;
      for (; begin + step <= end; begin += step)
        sum_pair(a + begin, b + begin, c + begin, d != nullptr ? d + begin : nullptr, std::make_index_sequence<lines>());
    }
    for (; begin + block <= end; begin += block) sum_block<T, block>(inputs, outputs, begin, average);
    for (; begin < end; ++begin) sum_block<T, 1>(inputs, outputs, begin, average);
  }
}

// max and min, used for statistics and flags: few elements, so no vector code, which would only slow compilation.
template <class T>
void extreme(Inputs inputs, Outputs outputs, std::size_t begin, std::size_t end, bool largest) {
  for (; begin < end; ++begin) {
    T best = static_cast<const T*>(inputs[0])[begin];
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const T next = static_cast<const T*>(inputs[k])[begin];
      if ((largest ? best < next : next < best) || next != next) best = next;
    }
    for (void* output : outputs) static_cast<T*>(output)[begin] = best;
  }
}

// Integers carry counts and flags. Signed and unsigned integers of one width share their code: sums wrap alike, and for
// comparisons the upper half of the values is moved below the lower half.
template <class U>
void reduce_integers(Reduction reduction, bool is_signed, Inputs inputs, Outputs outputs, std::size_t begin, std::size_t end) {
  const U moved = is_signed ? U(U(1) << (8 * sizeof(U) - 1)) : U(0);
  for (; begin < end; ++begin) {
    U result = static_cast<const U*>(inputs[0])[begin];
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const U next = static_cast<const U*>(inputs[k])[begin];
      const U a = U(result ^ moved), b = U(next ^ moved);
      if (reduction == Reduction::max) result = a < b ? next : result;
      else if (reduction == Reduction::min) result = b < a ? next : result;
      else result = U(result + next);
    }
    for (void* output : outputs) static_cast<U*>(output)[begin] = result;
  }
}

template <class T>
void reduce_reals(Reduction reduction, Inputs inputs, Outputs outputs, std::size_t begin, std::size_t end) {
  if (reduction == Reduction::max || reduction == Reduction::min)
    return extreme<T>(inputs, outputs, begin, end, reduction == Reduction::max);
  sum<T>(inputs, outputs, begin, end, reduction == Reduction::average);
}

}  // namespace detail

/// The Combine of type T. bfloat16 and float16 are combined in float and rounded once.
template <class T>
void combine(Reduction reduction, std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t begin,
             std::size_t end) {
  if constexpr (std::is_integral_v<T>)
    detail::reduce_integers<std::make_unsigned_t<T>>(reduction, std::is_signed_v<T>, inputs, outputs, begin, end);
  else detail::reduce_reals<T>(reduction, inputs, outputs, begin, end);
}

/// Elements of a type that must be one of T.
template <class... T>
Elements elements_of(DataType type, MemoryKind memory, void* data, std::size_t count) {
  Combine combines = nullptr;
  ((type == data_type_of<T> ? void(combines = &combine<T>) : void()), ...);
  return {type, memory, data, count, combines};
}

/// The part of `count` elements that rank `rank` of `size` reduces: equal pieces that begin on cache lines.
struct Piece {
  std::size_t begin, end;
};
inline Piece piece_of(std::size_t count, std::size_t element_bytes, int rank, int size) {
  const std::size_t grain = std::max<std::size_t>(1, 256 / element_bytes);
  const std::size_t grains = (count + grain - 1) / grain;
  const auto at = [&](int r) { return std::min(count, grains * std::size_t(r) / std::size_t(size) * grain); };
  return {at(rank), at(rank + 1)};
}

}  // namespace weft::comm

#ifdef WEFT_COMPILED
namespace weft::comm {
extern template void combine<float>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
extern template void combine<double>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
extern template void combine<bfloat16>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
extern template void combine<std::int32_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t,
                                           std::size_t);
extern template void combine<std::int64_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t,
                                           std::size_t);
extern template void combine<std::uint64_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t,
                                            std::size_t);
}  // namespace weft::comm
#endif
