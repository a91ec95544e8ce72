// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops over segments of rows: row i of an array [count, width] belongs to the segment ids[i]. The ids need no order. Sums of
// segments are embedding_backward (embedding.hpp); this header has the largest elements and the loops that combine an element
// with its segment. No loop uses atomics: a segment's rows are combined in their order, so every run gives the same bits.
//
//   kernels::segment_max<float>(device, {ids, count, width, segments}, x, largest, places);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// Rows of `width` elements and their segments; an id outside of [0, segments) belongs to none.
struct Segments {
  const std::int32_t* ids = nullptr;
  std::size_t count = 0, width = 0, segments = 0;
  KOKKOS_FORCEINLINE_FUNCTION bool has(std::size_t row) const { return ids[row] >= 0 && std::size_t(ids[row]) < segments; }
};

/// out[s, c] = the largest x[i, c] of segment s, in row i = places[s, c], the first of equal ones; a NaN counts as the largest. A
/// segment without rows has 0 at place -1. On devices one thread reads a whole column.
template <class T, class Exec>
void segment_max(Device<Exec>& device, const Segments& of, const T* x, T* out, std::int32_t* places) {
  using A = accumulate_t<T>;
  constexpr std::size_t most = detail::on_host<Exec> ? 64 : 1;
  const std::size_t width = of.width;
  detail::for_each(
      device, {"reduction", (of.count + of.segments) * width * sizeof(T)}, (width + most - 1) / most,
      KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t first = item * most, end = width - first < most ? width : first + most;
        for (std::size_t s = 0; s < of.segments; ++s)
          for (std::size_t c = first; c < end; ++c) {
            out[s * width + c] = T(A(0));
            places[s * width + c] = -1;
          }
        for (std::size_t i = 0; i < of.count; ++i) {
          if (!of.has(i)) continue;
          const std::size_t to = std::size_t(of.ids[i]) * width;
          for (std::size_t c = first; c < end; ++c) {
            const A value = A(x[i * width + c]), before = A(out[to + c]);
            if (places[to + c] >= 0 && !(value > before) && !(value != value && before == before)) continue;
            out[to + c] = x[i * width + c];
            places[to + c] = std::int32_t(i);
          }
        }
      });
}

/// out[i, c] = f(x[i, c], v[ids[i], c]) in accumulate_t; 0 in a row of no segment.
template <class To, class T, class S, class Exec, class F>
void map_segments(Device<Exec>& device, const Segments& of, const T* x, const S* v, To* out, F f) {
  using A = accumulate_t<To>;
  const std::size_t width = of.width;
  detail::for_each(
      device, {"elementwise", of.count * width * (sizeof(T) + sizeof(S) + sizeof(To))}, of.count, KOKKOS_LAMBDA(std::size_t i) {
        const bool here = of.has(i);
        const S* from = v + (here ? std::size_t(of.ids[i]) * width : 0);
        for (std::size_t c = 0; c < width; ++c) out[i * width + c] = here ? To(f(A(x[i * width + c]), A(from[c]))) : To(A(0));
      });
}

/// out[i, c] = g[s, c] of the row's segment s if its largest element is in row i, else 0: the gradient of x in segment_max.
template <class T, class Exec>
void place_segments(Device<Exec>& device, const Segments& of, const T* g, const std::int32_t* places, T* out) {
  const std::size_t width = of.width;
  detail::for_each(
      device, {"elementwise", of.count * width * (2 * sizeof(T) + sizeof(std::int32_t))}, of.count, KOKKOS_LAMBDA(std::size_t i) {
        const bool here = of.has(i);
        const std::size_t from = here ? std::size_t(of.ids[i]) * width : 0;
        for (std::size_t c = 0; c < width; ++c)
          out[i * width + c] = here && places[from + c] == std::int32_t(i) ? g[from + c] : T(accumulate_t<T>(0));
      });
}

/// x[s, :] / max(counts[s], 1), in place or not: means of sums.
template <class A, class Exec>
void divide_by_counts(Device<Exec>& device, std::size_t segments, std::size_t width, const A* x, const A* counts, A* out) {
  detail::for_each(
      device, {"elementwise", 2 * segments * width * sizeof(A)}, segments, KOKKOS_LAMBDA(std::size_t s) {
        const A divisor = counts[s] > A(1) ? counts[s] : A(1);
        for (std::size_t c = 0; c < width; ++c) out[s * width + c] = x[s * width + c] / divisor;
      });
}

// Functions of an element and a number of its segment.
struct ExpOfDifference {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A x, A top) const {
    return Kokkos::exp(x - top);
  }
};
struct QuotientBySegment {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A x, A total) const {
    return x / total;
  }
};
struct LessSegment {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A x, A total) const {
    return x - total;
  }
};

}  // namespace weft::kernels
