// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax and the places of largest elements along a dim whose parts are on several ranks: the loops before and after the
// all-reduces of a number for each row. Arrays are [outer, extent, inner] as in kernels/along_dim.hpp, of which this rank has
// `extent`; the numbers are [outer, inner].
//
//   kernels::powers_along<float>(device, along, x, top, sums);                       // top: the largest of all ranks
//   comm.all_reduce(sums, Reduction::sum);
//   kernels::softmax_from_sums<false, float>(device, along, x, top, sums, y);

#include <cstddef>
#include <cstdint>
#include <limits>

#include <Kokkos_Core.hpp>

#include <weft/kernels/along_dim.hpp>

namespace weft::kernels {

/// sums[o, i] = sum over k of e^(x[o, k, i] - top[o, i]).
template <class T, class Exec>
void powers_along(Device<Exec>& device, const Along& along, const T* x, const T* top, accumulate_t<T>* sums) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each_row(
        device, {"softmax", along.size() * sizeof(T), along.size()}, along.outer, KOKKOS_LAMBDA(std::size_t row, Team team) {
          const A total = team.template total_of_powers<V>(extent, x + row * extent, A(top[row]));
          if (team.leads()) sums[row] = total;
        });
  detail::for_each_strip<V>(
      device, {"softmax", along.size() * sizeof(T), along.size()}, along,
      KOKKOS_LAMBDA(std::size_t start, std::size_t to, std::size_t count) {
        const V most = V::load(top + to, count);
        V total = V(A(0));
        for (std::size_t k = 0; k < extent; ++k) total = total + exp(V::load(x + start + k * inner, count) - most);
        total.store(sums + to, count);
      });
}

/// y = e^(x - top) / sums, or its logarithm.
template <bool Log, class T, class Exec>
void softmax_from_sums(Device<Exec>& device, const Along& along, const T* x, const T* top, const accumulate_t<T>* sums, T* y) {
  using A = accumulate_t<T>;
  const std::size_t extent = along.extent, inner = along.inner;
  detail::for_each(
      device, {"softmax", 2 * along.size() * sizeof(T), along.size()}, along.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t of = item / extent * inner;
        for (std::size_t i = 0; i < inner; ++i) {
          const A above = A(x[item * inner + i]) - A(top[of + i]);
          if constexpr (Log) y[item * inner + i] = T(above - Kokkos::log(sums[of + i]));
          else y[item * inner + i] = T(Kokkos::exp(above) / sums[of + i]);
        }
      });
}

/// sums[o, i] = sum over k of y g, of softmax's gradient; with Log, the sum of g.
template <bool Log, class T, class Exec>
void softmax_gradient_sums(Device<Exec>& device, const Along& along, const T* y, const T* g, accumulate_t<T>* sums) {
  using A = accumulate_t<T>;
  if constexpr (Log) return sum_along<T>(device, along, g, A(1), sums);
  const std::size_t extent = along.extent, inner = along.inner;
  detail::for_each(
      device, {"softmax", 2 * along.size() * sizeof(T)}, along.outer * inner, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t start = item / inner * extent * inner + item % inner;
        A total = A(0);
        for (std::size_t k = 0; k < extent; ++k) total += A(y[start + k * inner]) * A(g[start + k * inner]);
        sums[item] = total;
      });
}

/// dx = y (g - sums), or with Log g - e^y sums.
template <bool Log, class T, class Exec>
void softmax_gradient_from_sums(Device<Exec>& device, const Along& along, const T* y, const T* g, const accumulate_t<T>* sums,
                                T* dx) {
  using A = accumulate_t<T>;
  const std::size_t extent = along.extent, inner = along.inner;
  detail::for_each(
      device, {"softmax", 3 * along.size() * sizeof(T)}, along.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t of = item / extent * inner;
        for (std::size_t i = 0; i < inner; ++i) {
          const A a = A(y[item * inner + i]), b = A(g[item * inner + i]), total = sums[of + i];
          if constexpr (Log) dx[item * inner + i] = T(b - Kokkos::exp(a) * total);
          else dx[item * inner + i] = T(a * (b - total));
        }
      });
}

/// Before an all-reduce by min: places[i] + first if this rank's largest element own[i] is as large as that of all ranks, `most`,
/// else the largest number. The place of a NaN becomes negative, so that it wins.
template <class T, class Exec>
void claim_places(Device<Exec>& device, std::size_t n, const T* own, const T* most, std::size_t first, std::int32_t* places) {
  using A = accumulate_t<T>;
  constexpr std::int32_t nowhere = std::numeric_limits<std::int32_t>::max(), nan = std::numeric_limits<std::int32_t>::min();
  detail::for_each(
      device, {"reduction", n * (2 * sizeof(T) + 2 * sizeof(std::int32_t))}, n, KOKKOS_LAMBDA(std::size_t i) {
        const A mine = A(own[i]);
        const std::int32_t place = places[i] + std::int32_t(first);
        places[i] = mine != mine ? place + nan : mine == A(most[i]) ? place : nowhere;
      });
}
/// After it: the places.
template <class Exec>
void settle_places(Device<Exec>& device, std::size_t n, std::int32_t* places) {
  constexpr std::int32_t nan = std::numeric_limits<std::int32_t>::min();
  detail::for_each(
      device, {"reduction", 2 * n * sizeof(std::int32_t)}, n,
      KOKKOS_LAMBDA(std::size_t i) { places[i] = places[i] < 0 ? places[i] - nan : places[i]; });
}

}  // namespace weft::kernels
