// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of elements that are copies of elements of other rows: the loop of padded, reversed and rolled dims. A source is a
// function of an element's index in the result that returns the index in x. On hosts it gives runs of them, which are copied as
// blocks.

#include <algorithm>
#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// The index of an element that is 0.
inline constexpr std::size_t no_source = std::size_t(-1);

/// Elements [to, to + count) of the result: those of x at from, from + step and so on, with a step of 1, 0 or -1, or zeros.
struct Run {
  std::size_t to, count, from;
  int step;
};

/// Copies the part of the run that lies in [begin, end) of a row; an element has `inner` numbers.
template <class T>
void copy_run(const Run& run, std::size_t begin, std::size_t end, std::size_t inner, const T* x, T* out) {
  const std::size_t first = std::max(run.to, begin), last = std::min(run.to + run.count, end);
  if (first >= last) return;
  const std::size_t skipped = first - run.to, count = last - first;
  T* const to = out + first * inner;
  if (run.from == no_source) {
    std::fill(to, to + count * inner, T(accumulate_t<T>(0)));
  } else if (run.step == 1) {
    const T* const from = x + (run.from + skipped) * inner;
    std::copy(from, from + count * inner, to);
  } else if (inner == 1) {
    const T* const from = x + (run.step == 0 ? run.from : run.from - skipped);
    if (run.step == 0) std::fill(to, to + count, *from);
    else std::reverse_copy(from - (count - 1), from + 1, to);
  } else {
    for (std::size_t k = 0; k < count; ++k) {
      const T* const from = x + (run.step == 0 ? run.from : run.from - skipped - k) * inner;
      std::copy(from, from + inner, to + k * inner);
    }
  }
}

/// out[row, k, i] = x[row_of(row), source(k), i] for k below `size`, or 0; x [rows, extent, inner].
template <class T, class Exec, class Rows, class Source>
requires(on_host<Exec>) void move_rows(Device<Exec>& device, const char* kind, std::size_t rows, const Rows& row_of,
                                       std::size_t extent, std::size_t size, std::size_t inner, const Source& source, const T* x,
                                       T* out) {
  // Long rows in parts of some thousand numbers, so that threads share them.
  const std::size_t part = std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, inner)), parts = (size + part - 1) / part;
  for_each(device, {kind, 2 * rows * size * inner * sizeof(T)}, rows * parts, [=](std::size_t item) {
    const std::size_t row = item / parts, begin = item % parts * part, end = std::min(size, begin + part), from = row_of(row);
    T* const to = out + row * size * inner;
    if (from == no_source) return copy_run<T>({0, size, no_source, 0}, begin, end, inner, nullptr, to);
    source.for_each_run([&](const Run& run) { copy_run(run, begin, end, inner, x + from * extent * inner, to); });
  });
}
template <class T, class Exec, class Rows, class Source>
requires(!on_host<Exec>) void move_rows(Device<Exec>& device, const char* kind, std::size_t rows, const Rows& row_of,
                                        std::size_t extent, std::size_t size, std::size_t inner, const Source& source, const T* x,
                                        T* out) {
  for_each(
      device, {kind, 2 * rows * size * inner * sizeof(T)}, rows * size * inner, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / inner / size, from = row_of(row),
                          at = from == no_source ? from : source(item / inner % size);
        out[item] = at == no_source ? T(accumulate_t<T>(0)) : x[(from * extent + at) * inner + item % inner];
      });
}

}  // namespace weft::kernels::detail
