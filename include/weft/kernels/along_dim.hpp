// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums, largest elements and softmax along one dim of an array [outer, extent, inner]. Along the last dim (inner 1) a row is read
// in lanes. Along other dims the lanes run over the inner dims, so no loop strides through single elements. Sums are in
// accumulate_t, in an order that depends only on the extents.
//
//   kernels::sum_along<float>(device, {outer, extent, inner}, x, 1.0f, sums);

#include <cstddef>
#include <cstdint>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// An array and one of its dims.
struct Along {
  std::size_t outer = 1, extent = 1, inner = 1;
  std::size_t size() const { return outer * extent * inner; }
};

namespace detail {

/// Calls f(start, to, count) for strips of columns: the elements start + k inner + j, for k below the extent and j below count,
/// belong to columns to + j.
template <class V, class Exec, class F>
requires(on_host<Exec>) void for_each_strip(Device<Exec>& device, Traffic traffic, const Along& along, const F& f) {
  constexpr std::size_t most = 8 * V::size;
  const std::size_t blocks = (along.inner + most - 1) / most, extent = along.extent, inner = along.inner;
  for_each(device, traffic, along.outer * blocks, [=](std::size_t item) {
    const std::size_t o = item / blocks, first = item % blocks * most, here = inner - first < most ? inner - first : most;
    sweep<V>(here, [&](std::size_t j, std::size_t count) { f(o * extent * inner + first + j, o * inner + first + j, count); });
  });
}
template <class V, class Exec, class F>
requires(!on_host<Exec>) void for_each_strip(Device<Exec>& device, Traffic traffic, const Along& along, const F& f) {
  const std::size_t extent = along.extent, inner = along.inner;
  for_each(
      device, traffic, along.outer * inner,
      KOKKOS_LAMBDA(std::size_t item) { f(item / inner * extent * inner + item % inner, item, std::size_t(1)); });
}

}  // namespace detail

/// out[o, i] = factor * sum over k of x[o, k, i].
template <class T, class Exec>
void sum_along(Device<Exec>& device, const Along& along, const T* x, accumulate_t<T> factor, accumulate_t<T>* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each_row(
        device, {"reduction", along.size() * sizeof(T) + along.outer * sizeof(accumulate_t<T>)}, along.outer,
        KOKKOS_LAMBDA(std::size_t row, Team team) {
          const accumulate_t<T> total = sum(team.template add_up<V>(
              extent, [&](std::size_t i, std::size_t count) { return V::load(x + row * extent + i, count); }));
          if (team.leads()) out[row] = factor * total;
        });
  detail::for_each_strip<V>(
      device, {"reduction", along.size() * sizeof(T) + along.outer * along.inner * sizeof(accumulate_t<T>)}, along,
      KOKKOS_LAMBDA(std::size_t start, std::size_t to, std::size_t count) {
        V total = V(accumulate_t<T>(0));
        for (std::size_t k = 0; k < extent; ++k) total = total + V::load(x + start + k * inner, count);
        (V(factor) * total).store(out + to, count);
      });
}

/// out[o, k, i] = factor * v[o, i].
template <class T, class S, class Exec>
void spread_along(Device<Exec>& device, const Along& along, const S* v, accumulate_t<T> factor, T* out) {
  using A = accumulate_t<T>;
  const std::size_t inner = along.inner, extent = along.extent;
  if (inner == 1)
    return detail::for_each(
        device, {"elementwise", along.size() * sizeof(T) + along.outer * sizeof(S)}, along.outer, KOKKOS_LAMBDA(std::size_t row) {
          const T value = T(factor * A(v[row]));
          for (std::size_t k = 0; k < extent; ++k) out[row * extent + k] = value;
        });
  detail::for_each(
      device, {"elementwise", along.size() * sizeof(T) + along.outer * along.inner * sizeof(S)}, along.outer * extent,
      KOKKOS_LAMBDA(std::size_t item) {
        const S* from = v + item / extent * inner;
        T* to = out + item * inner;
        for (std::size_t i = 0; i < inner; ++i) to[i] = T(factor * A(from[i]));
      });
}

/// out[o, k, i] = the sum of x[o, j, i] over j up to k, in their order, in accumulate_t; with Reverse over j from k on, the last
/// one first.
template <bool Reverse, class T, class Exec>
void cumsum_along(Device<Exec>& device, const Along& along, const T* x, T* out) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each(
        device, {"reduction", 2 * along.size() * sizeof(T)}, along.outer, KOKKOS_LAMBDA(std::size_t row) {
          A total = A(0);
          for (std::size_t k = 0; k < extent; ++k) {
            const std::size_t at = row * extent + (Reverse ? extent - 1 - k : k);
            total += A(x[at]);
            out[at] = T(total);
          }
        });
  detail::for_each_strip<V>(
      device, {"reduction", 2 * along.size() * sizeof(T)}, along,
      KOKKOS_LAMBDA(std::size_t start, std::size_t, std::size_t count) {
        V total = V(A(0));
        for (std::size_t k = 0; k < extent; ++k) {
          const std::size_t at = start + (Reverse ? extent - 1 - k : k) * inner;
          total = total + V::load(x + at, count);
          total.store(out + at, count);
        }
      });
}

/// out[o, i] = the largest x[o, k, i], at k = places[o, i], the first of equal ones; a NaN counts as the largest.
template <class T, class Exec>
void max_along(Device<Exec>& device, const Along& along, const T* x, T* out, std::int32_t* places) {
  using A = accumulate_t<T>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each(
        device, {"reduction", along.size() * sizeof(T) + along.outer * (sizeof(T) + sizeof(std::int32_t))}, along.outer,
        KOKKOS_LAMBDA(std::size_t row) {
          const T* from = x + row * extent;
          A best = A(from[0]);
          std::size_t at = 0;
          for (std::size_t k = 1; k < extent; ++k)
            if (A(from[k]) > best || (A(from[k]) != A(from[k]) && best == best)) {
              best = A(from[k]);
              at = k;
            }
          out[row] = T(best);
          places[row] = std::int32_t(at);
        });
  constexpr std::size_t most = 256;
  const std::size_t blocks = (inner + most - 1) / most;
  detail::for_each(
      device, {"reduction", along.size() * sizeof(T) + along.outer * along.inner * (sizeof(T) + sizeof(std::int32_t))},
      along.outer * blocks, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t o = item / blocks, first = item % blocks * most, here = inner - first < most ? inner - first : most;
        T* best = out + o * inner + first;
        std::int32_t* at = places + o * inner + first;
        const T* from = x + o * extent * inner + first;
        for (std::size_t i = 0; i < here; ++i) {
          best[i] = from[i];
          at[i] = 0;
        }
        for (std::size_t k = 1; k < extent; ++k) {
          from += inner;
          for (std::size_t i = 0; i < here; ++i) {
            const A value = A(from[i]), before = A(best[i]);
            const bool wins = value > before || (value != value && before == before);
            best[i] = wins ? from[i] : best[i];
            at[i] = wins ? std::int32_t(k) : at[i];
          }
        }
      });
}

/// out[o, k, i] = g[o, i] if k = places[o, i], else 0.
template <class T, class Exec>
void place_along(Device<Exec>& device, const Along& along, const T* g, const std::int32_t* places, T* out) {
  const std::size_t extent = along.extent, inner = along.inner;
  detail::for_each(
      device, {"elementwise", along.size() * sizeof(T) + along.outer * along.inner * (sizeof(T) + sizeof(std::int32_t))},
      along.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t o = item / extent;
        const std::int32_t k = std::int32_t(item % extent);
        const T* from = g + o * inner;
        const std::int32_t* at = places + o * inner;
        T* to = out + item * inner;
        for (std::size_t i = 0; i < inner; ++i) to[i] = at[i] == k ? from[i] : T(accumulate_t<T>(0));
      });
}

/// out[o, j, i] = x[o, places[o, j, i], i] for j < count, 0 at a negative place: the transpose of place_along, and of all other
/// functions that add elements at places.
template <class T, class Exec>
void take_along(Device<Exec>& device, const Along& along, std::size_t count, const T* x, const std::int32_t* places, T* out) {
  const std::size_t extent = along.extent, inner = along.inner, taken = along.outer * count * inner;
  detail::for_each(
      device, {"elementwise", taken * (2 * sizeof(T) + sizeof(std::int32_t))}, along.outer * count,
      KOKKOS_LAMBDA(std::size_t item) {
        const T* from = x + item / count * extent * inner;
        for (std::size_t i = 0; i < inner; ++i) {
          const std::int32_t place = places[item * inner + i];
          out[item * inner + i] = place < 0 ? T(accumulate_t<T>(0)) : from[std::size_t(place) * inner + i];
        }
      });
}

/// y = softmax of x along the dim, or its logarithm.
template <bool Log, class T, class Exec>
void softmax_along(Device<Exec>& device, const Along& along, const T* x, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each_row(
        device, {"softmax", 2 * along.size() * sizeof(T), along.size()}, along.outer, KOKKOS_LAMBDA(std::size_t row, Team team) {
          const T* from = x + row * extent;
          T* to = y + row * extent;
          const A top = team.template maximum<V>(extent, from, -Kokkos::Experimental::infinity_v<A>);
          const A total = team.template total_of_powers<V>(extent, from, top);
          if constexpr (Log) {
            const A lse = top + Kokkos::log(total);
            team.template sweep<V>(
                extent, [&](std::size_t i, std::size_t count) { (V::load(from + i, count) - V(lse)).store(to + i, count); });
          } else {
            const A factor = A(1) / total;
            team.template sweep<V>(extent, [&](std::size_t i, std::size_t count) {
              (exp(V::load(from + i, count) - V(top)) * V(factor)).store(to + i, count);
            });
          }
        });
  detail::for_each_strip<V>(
      device, {"softmax", 2 * along.size() * sizeof(T), along.size()}, along,
      KOKKOS_LAMBDA(std::size_t start, std::size_t, std::size_t count) {
        T* const to = y + start;
        V top = V::load(x + start, count), total = V(A(0));
        for (std::size_t k = 1; k < extent; ++k) top = max_of(top, V::load(x + start + k * inner, count));
        for (std::size_t k = 0; k < extent; ++k) total = total + exp(V::load(x + start + k * inner, count) - top);
        if constexpr (Log) {
          V lse = top;
          for (std::size_t j = 0; j < V::size; ++j) lse.v[j] = top.v[j] + Kokkos::log(total.v[j]);
          for (std::size_t k = 0; k < extent; ++k) {
            (V::load(x + start + k * inner, count) - lse).store(to + k * inner, count);
          }
        } else {
          const V factor = V(A(1)) / total;
          for (std::size_t k = 0; k < extent; ++k) {
            (exp(V::load(x + start + k * inner, count) - top) * factor).store(to + k * inner, count);
          }
        }
      });
}

/// dx = y (g - sum of y g) for y = softmax(x), or g - e^y sum of g for y = log_softmax(x).
template <bool Log, class T, class Exec>
void softmax_along_backward(Device<Exec>& device, const Along& along, const T* y, const T* g, T* dx) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  const std::size_t extent = along.extent, inner = along.inner;
  if (inner == 1)
    return detail::for_each_row(
        device, {"softmax", 3 * along.size() * sizeof(T)}, along.outer, KOKKOS_LAMBDA(std::size_t row, Team team) {
          const T *ys = y + row * extent, *gs = g + row * extent;
          T* to = dx + row * extent;
          const A total = sum(team.template add_up<V>(extent, [&](std::size_t i, std::size_t count) {
            return Log ? V::load(gs + i, count) : V::load(ys + i, count) * V::load(gs + i, count);
          }));
          team.template sweep<V>(extent, [&](std::size_t i, std::size_t count) {
            const V a = V::load(ys + i, count), b = V::load(gs + i, count);
            if constexpr (Log) (b - exp(a) * V(total)).store(to + i, count);
            else (a * (b - V(total))).store(to + i, count);
          });
        });
  detail::for_each_strip<V>(
      device, {"softmax", 3 * along.size() * sizeof(T)}, along, KOKKOS_LAMBDA(std::size_t start, std::size_t, std::size_t count) {
        T* const to = dx + start;
        V total = V(A(0));
        for (std::size_t k = 0; k < extent; ++k) {
          const V a = V::load(y + start + k * inner, count), b = V::load(g + start + k * inner, count);
          total = total + (Log ? b : a * b);
        }
        for (std::size_t k = 0; k < extent; ++k) {
          const std::size_t at = start + k * inner;
          const V a = V::load(y + at, count), b = V::load(g + at, count);
          if constexpr (Log) (b - exp(a) * total).store(to + k * inner, count);
          else (a * (b - total)).store(to + k * inner, count);
        }
      });
}

}  // namespace weft::kernels
