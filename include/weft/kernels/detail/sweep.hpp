// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops along an array in lanes: the lane types of an execution space, the pieces of a range, sums.
//
//   using V = lanes_for<Exec, float>;
//   sweep<V>(n, [&](std::size_t i, std::size_t count) { (V::load(x + i, count) * V(2)).store(y + i, count); });

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/detail/lanes.hpp>

namespace weft::kernels::detail {

using weft::detail::on_host;

template <class Exec, class T>
constexpr std::size_t host_lanes() {
  if constexpr (on_host<Exec>) weft::detail::require_real<T>();
  return weft::detail::Real<T> ? register_bytes / sizeof(accumulate_t<T>) : 1;
}
/// The lanes in which Exec computes values of type T (in accumulate_t<T>): a register on hosts, otherwise 16 bytes of memory.
template <class Exec, class T>
using lanes_for = std::conditional_t<on_host<Exec>, Lanes<accumulate_t<T>, host_lanes<Exec, T>()>,
                                     Lanes<accumulate_t<T>, 16 / sizeof(T), false>>;

/// Prefetches the memory of n values for a later read or write: rows of a matrix are too far apart for the processor's
/// prefetcher.
template <bool write = false, class T>
[[gnu::always_inline]] inline void fetch([[maybe_unused]] const T* p, [[maybe_unused]] std::size_t n) {
#if WEFT_COMPILER_VECTORS
  for (std::size_t byte = 0; byte < n * sizeof(T); byte += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(p) + byte, write ? 1 : 0);
#endif
}

/// Calls f(i, count) for the pieces of [0, n) of the size of V; count is V::size except for the last piece.
template <class V, class F>
KOKKOS_FORCEINLINE_FUNCTION void sweep(std::size_t n, const F& f) {
  std::size_t i = 0;
  for (; i + V::size <= n; i += V::size) f(i, V::size);
  if (i < n) f(i, n - i);
}

/// The sum of f(i, count) over the pieces of [0, n). Four independent sums, because a single sum waits for each addition.
template <class V, class F>
KOKKOS_FORCEINLINE_FUNCTION auto add_up(std::size_t n, const F& f) {
  using Sum = decltype(f(n, n));
  constexpr auto zero = typename V::value_type(0);
  Sum sums[4] = {Sum(zero), Sum(zero), Sum(zero), Sum(zero)};
  std::size_t i = 0;
  if constexpr (V::size > 1)
    for (; i + 4 * V::size <= n; i += 4 * V::size) {
      sums[0] = sums[0] + f(i, V::size);
      sums[1] = sums[1] + f(i + V::size, V::size);
      sums[2] = sums[2] + f(i + 2 * V::size, V::size);
      sums[3] = sums[3] + f(i + 3 * V::size, V::size);
    }
  sweep<V>(n - i, [&](std::size_t j, std::size_t count) { sums[0] = sums[0] + f(i + j, count); });
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Two sums computed together.
template <class V>
struct Two {
  V first, second;
  KOKKOS_FORCEINLINE_FUNCTION Two(V a, V b) : first(a), second(b) {}
  KOKKOS_FORCEINLINE_FUNCTION explicit Two(typename V::value_type x) : first(x), second(x) {}
  KOKKOS_FORCEINLINE_FUNCTION friend Two operator+(Two a, Two b) { return Two(a.first + b.first, a.second + b.second); }
};

/// The largest lane; for scopes where a member function of that name hides the friend.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION auto largest_of(V x) {
  return largest(x);
}

/// 1 / (1 + e^-x).
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V sigmoid(V x) {
  return reciprocal(V(1) + exp(-x));
}

}  // namespace weft::kernels::detail
