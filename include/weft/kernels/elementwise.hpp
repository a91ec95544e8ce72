// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums, products and casts of plain arrays, and sums over the rows of a matrix.
//
//   kernels::add(device, n, x, y, out);   // out = x + y

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/sum_rows.hpp>

namespace weft::kernels {

namespace detail {
template <class From, class To>
struct CastOne {
  const From* x;
  To* out;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(std::size_t i) const {
    out[i] = static_cast<To>(static_cast<accumulate_t<To>>(static_cast<accumulate_t<From>>(x[i])));
  }
};
}  // namespace detail

/// out[i] = value.
template <class T, class Exec>
void fill(Device<Exec>& device, std::size_t n, T* out, T value) {
  using V = detail::lanes_for<Exec, T>;
  const auto v = static_cast<accumulate_t<T>>(value);
  detail::for_lanes<V>(
      device, {"fill", n * sizeof(T)}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) { V(v).store(out + i, count); });
}

/// out[i] = a[i] + b[i]; `out` may be either of them.
template <class T, class Exec>
void add(Device<Exec>& device, std::size_t n, const T* a, const T* b, T* out) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 3 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { (V::load(a + i, count) + V::load(b + i, count)).store(out + i, count); });
}

/// out[i] = a[i] * b[i]; `out` may be either of them.
template <class T, class Exec>
void multiply(Device<Exec>& device, std::size_t n, const T* a, const T* b, T* out) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 3 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { (V::load(a + i, count) * V::load(b + i, count)).store(out + i, count); });
}

/// out[i] = factor * x[i]; `out` may be `x`.
template <class T, class Exec>
void scale(Device<Exec>& device, std::size_t n, accumulate_t<T> factor, const T* x, T* out) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 2 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { (V(factor) * V::load(x + i, count)).store(out + i, count); });
}

/// y[i] += factor * x[i], in accumulate_t<T>.
template <class T, class Y, class Exec>
void axpy(Device<Exec>& device, std::size_t n, accumulate_t<T> factor, const T* x, Y* y) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", n * (sizeof(T) + 2 * sizeof(Y))}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        (V::load(y + i, count) + V(factor) * V::load(x + i, count)).store(y + i, count);
      });
}

/// sum[i] += x[i]; sum may be wider than x (gradients of bfloat16 parameters are summed in float).
template <class T, class A, class Exec>
void accumulate(Device<Exec>& device, std::size_t n, const T* x, A* sum) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", n * (sizeof(T) + 2 * sizeof(A))}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        (V::load(sum + i, count) + V::load(x + i, count)).store(sum + i, count);
      });
}

/// out[i] = To(x[i]): float to bfloat16 rounds to nearest even.
template <class From, class To, class Exec>
requires(std::is_same_v<accumulate_t<From>, accumulate_t<To>>) void cast(Device<Exec>& device, std::size_t n, const From* x,
                                                                         To* out) {
  using V = detail::lanes_for<Exec, From>;
  detail::for_lanes<V>(
      device, {"cast", n * (sizeof(From) + sizeof(To))}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { V::load(x + i, count).store(out + i, count); });
}
template <class From, class To, class Exec>
requires(!std::is_same_v<accumulate_t<From>, accumulate_t<To>>) void cast(Device<Exec>& device, std::size_t n, const From* x,
                                                                          To* out) {
  detail::for_each(device, {"cast", n * (sizeof(From) + sizeof(To))}, n, detail::CastOne<From, To>{x, out});
}

/// out[r, c] = x[r, c] + bias[c]; rows are contiguous, `out` may be `x`.
template <class T, class Exec>
void add_row(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, const T* bias, T* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", (2 * rows + 1) * columns * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.template sweep<V>(columns, [&](std::size_t i, std::size_t count) {
          (V::load(x + row * columns + i, count) + V::load(bias + i, count)).store(out + row * columns + i, count);
        });
      });
}

/// out[r, c] = x[r, c] * gain[c]; rows are contiguous, `out` may be `x`.
template <class T, class Exec>
void multiply_row(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, const T* gain, T* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", (2 * rows + 1) * columns * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.template sweep<V>(columns, [&](std::size_t i, std::size_t count) {
          (V::load(x + row * columns + i, count) * V::load(gain + i, count)).store(out + row * columns + i, count);
        });
      });
}

/// out[c] (+)= sum over r of x[r * ld + c], in accumulate_t<T>, in blocks of rows, so the error grows slowly.
template <class T, class Exec>
void column_sums(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, std::size_t ld, accumulate_t<T>* out,
                 bool accumulate) {
  using V = detail::lanes_for<Exec, T>;
  detail::sum_rows<V, 1>(device, {"reduction", rows * columns * sizeof(T)}, rows, columns, detail::LoadRow<V, T>{x, ld},
                         detail::Outputs<accumulate_t<T>, 1>{{out}}, accumulate);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
