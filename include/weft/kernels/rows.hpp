// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops over the rows and elements of a matrix for user-written layers: differences and quotients, one number per row, softmax of
// a row. Rows are contiguous; sums are in accumulate_t, on hosts in the order of the columns.
//
//   kernels::row_sums(device, rows, columns, x, 1.0f / columns, mean);   // mean[r] = sum over c of x[r, c] / columns

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// out[i] = a[i] - b[i]; `out` may be either of them.
template <class T, class Exec>
void subtract(Device<Exec>& device, std::size_t n, const T* a, const T* b, T* out) {
  using A = accumulate_t<T>;
  weft::detail::for_each_index(
      device, {"elementwise", 3 * n * sizeof(T)}, n, KOKKOS_LAMBDA(const std::size_t i) { out[i] = T(A(a[i]) - A(b[i])); });
}

/// out[i] = a[i] / b[i]; `out` may be either of them.
template <class T, class Exec>
void divide(Device<Exec>& device, std::size_t n, const T* a, const T* b, T* out) {
  using A = accumulate_t<T>;
  weft::detail::for_each_index(
      device, {"elementwise", 3 * n * sizeof(T)}, n, KOKKOS_LAMBDA(const std::size_t i) { out[i] = T(A(a[i]) / A(b[i])); });
}

/// out[i] = x[i] * *factor, with the factor in device memory.
template <class T, class S, class Exec>
void multiply_scalar(Device<Exec>& device, std::size_t n, const T* x, const S* factor, T* out) {
  using A = accumulate_t<T>;
  weft::detail::for_each_index(
      device, {"elementwise", 2 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(const std::size_t i) { out[i] = T(A(x[i]) * static_cast<A>(*factor)); });
}

/// out[i] = *value, with the value in device memory.
template <class T, class S, class Exec>
void fill_scalar(Device<Exec>& device, std::size_t n, const S* value, T* out) {
  using A = accumulate_t<T>;
  weft::detail::for_each_index(
      device, {"fill", n * sizeof(T)}, n, KOKKOS_LAMBDA(const std::size_t i) { out[i] = T(static_cast<A>(*value)); });
}

/// *out = sum of a[i] * b[i], or of a[i] if b is null; added in double.
template <class T, class Exec>
void dot(Device<Exec>& device, std::size_t n, const T* a, const T* b, double* out) {
  using A = accumulate_t<T>;
  detail::sum_blocks(
      device, {"reduction", (b == nullptr ? 1 : 2) * n * sizeof(T)}, n, out, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double sum = 0;
        for (std::size_t i = begin; i < end; ++i) sum += double(A(a[i])) * (b == nullptr ? 1.0 : double(A(b[i])));
        return sum;
      });
}

/// out[r] = factor * sum over c of x[r, c].
template <class T, class Exec>
void row_sums(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, accumulate_t<T> factor,
              accumulate_t<T>* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"reduction", rows * (columns * sizeof(T) + sizeof(A))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A sum = team.template total<A>(columns, [&](std::size_t c, A& part) { part += A(x[row * columns + c]); });
        if (team.leads()) out[row] = factor * sum;
      });
}

/// out[r, c] = x[r, c] * v[r].
template <class T, class V, class Exec>
void multiply_column(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, const V* v, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", rows * (2 * columns * sizeof(T) + sizeof(V))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A factor = A(v[row]);
        team.each(columns, [&](std::size_t c) { out[row * columns + c] = T(A(x[row * columns + c]) * factor); });
      });
}

/// out[r, c] = x[r, c] / v[r].
template <class T, class V, class Exec>
void divide_column(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* x, const V* v, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", rows * (2 * columns * sizeof(T) + sizeof(V))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A divisor = A(v[row]);
        team.each(columns, [&](std::size_t c) { out[row * columns + c] = T(A(x[row * columns + c]) / divisor); });
      });
}

/// out[r, c] = factor * v[r].
template <class T, class V, class Exec>
void spread_column(Device<Exec>& device, std::size_t rows, std::size_t columns, const V* v, accumulate_t<T> factor, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", rows * (columns * sizeof(T) + sizeof(V))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const T value = T(factor * A(v[row]));
        team.each(columns, [&](std::size_t c) { out[row * columns + c] = value; });
      });
}

/// out[r, c] = v[c].
template <class T, class V, class Exec>
void spread_row(Device<Exec>& device, std::size_t rows, std::size_t columns, const V* v, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", columns * (rows * sizeof(T) + sizeof(V))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.each(columns, [&](std::size_t c) { out[row * columns + c] = T(A(v[c])); });
      });
}

/// out[r] = sum over c < valid of exp(x[r, c] - maximum[r]).
template <class T, class Exec>
void exp_sums(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* x,
              const accumulate_t<T>* maximum, accumulate_t<T>* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"softmax", rows * (valid * sizeof(T) + 2 * sizeof(A)), rows * valid}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A sum = team.template total<A>(
            valid, [&](std::size_t c, A& part) { part += Kokkos::exp(A(x[row * columns + c]) - maximum[row]); });
        if (team.leads()) out[row] = sum;
      });
}

/// sums[r] = maximum[r] + log(sums[r]).
template <class A, class Exec>
void finish_log_sum_exp(Device<Exec>& device, std::size_t rows, const A* maximum, A* sums) {
  weft::detail::for_each_index(
      device, {"softmax", 3 * rows * sizeof(A)}, rows,
      KOKKOS_LAMBDA(const std::size_t row) { sums[row] = maximum[row] + Kokkos::log(sums[row]); });
}

/// out[r, c] = x[r, c] - lse[r] if Log, its exp otherwise; times g[r] unless g is null. 0 for c >= valid.
template <bool Log, class T, class Exec>
void normalise_rows(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* x,
                    const accumulate_t<T>* lse, const accumulate_t<T>* g, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"softmax", rows * ((valid + columns) * sizeof(T) + sizeof(A))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A factor = g == nullptr ? A(1) : g[row];
        team.each(columns, [&](std::size_t c) {
          const std::size_t at = row * columns + c;
          const A log = c < valid ? A(x[at]) - lse[row] : A(0);
          out[at] = c < valid ? T(factor * (Log ? log : Kokkos::exp(log))) : T(A(0));
        });
      });
}

/// dx[r, c] = y (g - sum over c of y g), for y = softmax(x).
template <class T, class Exec>
void softmax_backward(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* y, const T* g, T* dx) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"softmax", 3 * rows * columns * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t first = row * columns;
        const A sum = team.template total<A>(columns, [&](std::size_t c, A& part) { part += A(y[first + c]) * A(g[first + c]); });
        team.each(columns, [&](std::size_t c) { dx[first + c] = T(A(y[first + c]) * (A(g[first + c]) - sum)); });
      });
}

/// dx[r, c] = g - exp(y) sum over c of g, for y = log_softmax(x).
template <class T, class Exec>
void log_softmax_backward(Device<Exec>& device, std::size_t rows, std::size_t columns, const T* y, const T* g, T* dx) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"softmax", 3 * rows * columns * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const std::size_t first = row * columns;
        const A sum = team.template total<A>(columns, [&](std::size_t c, A& part) { part += A(g[first + c]); });
        team.each(columns, [&](std::size_t c) { dx[first + c] = T(A(g[first + c]) - Kokkos::exp(A(y[first + c])) * sum); });
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
