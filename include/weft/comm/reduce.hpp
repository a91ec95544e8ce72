// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reduction of several buffers, element by element in the order they are given, into several others: the arithmetic of
// every collective that weft computes itself. One order on every backend means one result, bit for bit.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <weft/comm/operation.hpp>

namespace weft::comm {

namespace detail {

template <Reduction R, class T>
constexpr T combine(T a, T b) {
  if constexpr (R == Reduction::max) return (a < b || b != b) ? b : a;
  else if constexpr (R == Reduction::min) return (b < a || b != b) ? b : a;
  else if constexpr (std::is_integral_v<T>)
    return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));  // wraps, never undefined
  else return a + b;
}

template <Reduction R, class T>
constexpr T finish(accumulate_t<T> sum, std::size_t inputs) {
  if constexpr (R == Reduction::average && !std::is_integral_v<T>) return T(sum / accumulate_t<T>(inputs));
  else return T(sum);
}

// Loops of a constant length over a local block: every compiler makes vectors of them at -O2, without asking whether the
// buffers overlap (in place they do).
template <Reduction R, class T, std::size_t block>
void reduce_block(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t at) {
  using A = accumulate_t<T>;
  A sum[block];
  T rounded[block];
  const T* first = static_cast<const T*>(inputs[0]) + at;
  for (std::size_t i = 0; i < block; ++i) sum[i] = A(first[i]);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const T* next = static_cast<const T*>(inputs[k]) + at;
    for (std::size_t i = 0; i < block; ++i) sum[i] = combine<R, A>(sum[i], A(next[i]));
  }
  for (std::size_t i = 0; i < block; ++i) rounded[i] = finish<R, T>(sum[i], inputs.size());
  for (void* output : outputs) std::memcpy(static_cast<T*>(output) + at, rounded, sizeof rounded);
}

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
  template <Reduction R>
  Line combined(const T* other) const {
    using A = accumulate_t<T>;
    Line line;
    for (std::size_t i = 0; i < size; ++i) line.values[i] = finish<R, T>(combine<R, A>(A(values[i]), A(other[i])), 2);
    return line;
  }
};

// Two buffers into both, as two ranks in place do it; the lines stay in registers. Eight at a time: where the two addresses fall
// into one slot of the cache's way predictor (of some AMD processors), going back and forth line by line takes 5 times as long.
template <Reduction R, class T, std::size_t... K>
void reduce_pair(const T* a, const T* b, T* c, T* d, std::index_sequence<K...>) {
  constexpr std::size_t size = Line<T>::size;
  Line<T> lines[] = {Line<T>::load(a + K * size)...};
  ((lines[K] = lines[K].template combined<R>(b + K * size)), ...);
  (lines[K].store(d + K * size), ...);
  (lines[K].store(c + K * size), ...);
}

template <Reduction R, class T>
void reduce_typed(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t begin, std::size_t end) {
  // Integers carry counts and flags: vectors of them would only cost the compiler's time.
  constexpr std::size_t block = std::is_integral_v<T> ? 1 : Line<T>::size;
  if constexpr (!std::is_integral_v<T>) {
    if (inputs.size() == 2 && outputs.size() == 2) {
      constexpr std::size_t lines = 8, step = lines * Line<T>::size;
      const T *a = static_cast<const T*>(inputs[0]), *b = static_cast<const T*>(inputs[1]);
      T *c = static_cast<T*>(outputs[0]), *d = static_cast<T*>(outputs[1]);
      for (; begin + step <= end; begin += step)
        reduce_pair<R>(a + begin, b + begin, c + begin, d + begin, std::make_index_sequence<lines>());
    }
  }
  for (; begin + block <= end; begin += block) reduce_block<R, T, block>(inputs, outputs, begin);
  for (; begin < end; ++begin) reduce_block<R, T, 1>(inputs, outputs, begin);
}

}  // namespace detail

/// outputs[j][i] = reduction over k, in order, of inputs[k][i], for begin <= i < end and every j. An output may be one of
/// the inputs. bfloat16 is combined in float and rounded once.
inline void reduce(DataType type, Reduction reduction, std::span<const void* const> inputs, std::span<void* const> outputs,
                   std::size_t begin, std::size_t end) {
  dispatch(type, [&](auto zero) {
    using T = decltype(zero);
    switch (reduction) {
      case Reduction::sum:
        return detail::reduce_typed<Reduction::sum, T>(inputs, outputs, begin, end);
      case Reduction::max:
        return detail::reduce_typed<Reduction::max, T>(inputs, outputs, begin, end);
      case Reduction::min:
        return detail::reduce_typed<Reduction::min, T>(inputs, outputs, begin, end);
      case Reduction::average:
        return detail::reduce_typed<Reduction::average, T>(inputs, outputs, begin, end);
    }
  });
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
