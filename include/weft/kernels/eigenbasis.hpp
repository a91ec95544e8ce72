// SPDX-License-Identifier: Apache-2.0
#pragma once
// Orthonormal bases of small symmetric matrices: the eigenvectors by one-sided Jacobi rotations (Hestenes 1958; Golub and Van
// Loan, section 8.6), and the basis of given rows by Householder reflections (section 5.2). Bases are stored by rows: row k is
// the k-th vector. Each kernel works on all rows or pairs at once; the order of additions is fixed, so bits depend on the matrix
// only.
//
//   kernels::eigenvectors(device, n, matrix, basis);    // row k of basis [n, n]: the eigenvector of the k-th largest eigenvalue
//   kernels::orthonormal_rows(device, n, rows, basis);  // Qᵀ of a QR decomposition of rowsᵀ; overwrites rows

#include <cstddef>
#include <cstdint>
#include <limits>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/squared_norm.hpp>

namespace weft::kernels {

namespace detail {

/// Sweeps of Jacobi rotations. Convergence is quadratic; six to ten sweeps reach the precision of double.
inline constexpr std::size_t jacobi_sweeps = 12;

template <class A>
KOKKOS_INLINE_FUNCTION double dot(std::size_t n, const A* a, const A* b) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}
template <class A>
KOKKOS_INLINE_FUNCTION void rotate(std::size_t n, A cosine, A sine, A* a, A* b) {
  for (std::size_t i = 0; i < n; ++i) {
    const A first = a[i], second = b[i];
    a[i] = cosine * first - sine * second;
    b[i] = sine * first + cosine * second;
  }
}

template <class A, class Exec>
void set_identity(Device<Exec>& device, std::size_t n, A* x) {
  weft::detail::for_each_index(
      device, {"optimizer", n * n * sizeof(A)}, n * n,
      KOKKOS_LAMBDA(const std::size_t i) { x[i] = i / n == i % n ? A(1) : A(0); });
}

/// Makes the rows of `work` [n, n] orthogonal by rotations of pairs, which are applied to `basis` too. A round rotates the n / 2
/// pairs of a round-robin tournament, which share no row. `square`: the sum of the squares of `work`. Two rows that are both
/// shorter than sqrt(epsilon) of its root stay: rounding would choose their angle.
template <class A, class Exec>
void rotate_pairs(Device<Exec>& device, std::size_t n, const double* square, A* work, A* basis) {
  constexpr double least = double(std::numeric_limits<A>::epsilon());
  const std::size_t players = n + n % 2, others = players - 1;
  for (std::size_t round = 0; round < jacobi_sweeps * others; ++round)
    weft::detail::for_each_index(
        device, {"optimizer", 4 * n * n * sizeof(A)}, players / 2, KOKKOS_LAMBDA(const std::size_t pair) {
          const std::size_t turn = round % others;
          std::size_t p = pair == 0 ? others : (turn + pair) % others, q = (turn + others - pair) % others;
          if (p > q) {
            const std::size_t larger = p;
            p = q;
            q = larger;
          }
          if (q >= n) return;
          A *const a = work + p * n, *const b = work + q * n;
          const double aa = dot(n, a, a), bb = dot(n, b, b), ab = dot(n, a, b);
          if (ab == 0 || (aa <= least * *square && bb <= least * *square)) return;
          const double zeta = (bb - aa) / (2 * ab), size = Kokkos::sqrt(1 + zeta * zeta);
          const double tangent = zeta < 0 ? 1 / (zeta - size) : 1 / (zeta + size);
          const double cosine = 1 / Kokkos::sqrt(1 + tangent * tangent);
          rotate(n, A(cosine), A(cosine * tangent), a, b);
          rotate(n, A(cosine), A(cosine * tangent), basis + p * n, basis + q * n);
        });
}

}  // namespace detail

/// places[i]: the rank of keys[i * step] among all, the largest first; equal keys keep their order. A NaN comes last.
template <class A, class Exec>
void descending_places(Device<Exec>& device, std::size_t n, const A* keys, std::size_t step, std::uint32_t* places) {
  weft::detail::for_each_index(
      device, {"optimizer", n * (sizeof(A) + sizeof(std::uint32_t))}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const A key = keys[i * step];
        std::uint32_t place = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const A other = keys[j * step];
          const bool nan = key != key, other_nan = other != other;
          const bool before = nan != other_nan ? nan : !nan && other != key ? other > key : j < i;
          place += before ? 1 : 0;
        }
        places[i] = place;
      });
}

/// out[places[row], column] = in[row, column], in [rows, columns]; with `by_columns` out[row, places[column]] = in[row, column].
template <class A, class Exec>
void permute_lines(Device<Exec>& device, std::size_t rows, std::size_t columns, bool by_columns, const std::uint32_t* places,
                   const A* in, A* out) {
  weft::detail::for_each_index(
      device, {"optimizer", 2 * rows * columns * sizeof(A)}, rows * columns, KOKKOS_LAMBDA(const std::size_t i) {
        const std::size_t row = i / columns, column = i % columns;
        out[by_columns ? row * columns + places[column] : places[row] * columns + column] = in[i];
      });
}

/// The eigenvectors of a symmetric, positive semidefinite matrix [n, n], by descending eigenvalue, as the rows of basis [n, n].
/// Vectors of eigenvalues below sqrt(epsilon) of the largest are a basis of their space, not apart from each other. Allocates
/// 2 n² + n elements.
template <class A, class Exec>
void eigenvectors(Device<Exec>& device, std::size_t n, const A* matrix, A* basis) {
  if (n == 0) return;
  const weft::detail::Buffer memory[] = {device.allocate(n * n * sizeof(A)), device.allocate(n * n * sizeof(A)),
                                         device.allocate(n * sizeof(double)), device.allocate(n * sizeof(std::uint32_t))};
  A *const work = static_cast<A*>(memory[0].get()), *const rotated = static_cast<A*>(memory[1].get());
  double* const squares = static_cast<double*>(memory[2].get());
  auto* const places = static_cast<std::uint32_t*>(memory[3].get());
  weft::detail::for_each_index(
      device, {"optimizer", 2 * n * n * sizeof(A)}, n * n, KOKKOS_LAMBDA(const std::size_t i) { work[i] = matrix[i]; });
  detail::set_identity<A>(device, n, rotated);
  squared_norm(device, n * n, matrix, squares);
  detail::rotate_pairs<A>(device, n, static_cast<const double*>(squares), work, rotated);
  weft::detail::for_each_index(
      device, {"optimizer", n * n * sizeof(A)}, n,
      KOKKOS_LAMBDA(const std::size_t row) { squares[row] = detail::dot(n, work + row * n, work + row * n); });
  descending_places(device, n, static_cast<const double*>(squares), 1, places);
  permute_lines<A>(device, n, n, false, places, rotated, basis);
}

/// The rows of basis [n, n] are orthonormal, and the first k of them span the first k rows of x [n, n] for every k: Qᵀ of the QR
/// decomposition of xᵀ, up to signs. Rows that depend on earlier ones are replaced by vectors that complete the basis. Overwrites
/// x. Allocates n elements.
template <class A, class Exec>
void orthonormal_rows(Device<Exec>& device, std::size_t n, A* x, A* basis) {
  if (n == 0) return;
  const weft::detail::Buffer memory[] = {device.allocate(n * sizeof(A)), device.allocate(sizeof(double))};
  A* const factors = static_cast<A*>(memory[0].get());
  double* const total = static_cast<double*>(memory[1].get());
  const double least = double(n) * double(std::numeric_limits<A>::epsilon());
  squared_norm(device, n * n, static_cast<const A*>(x), total);
  for (std::size_t k = 0; k < n; ++k) {
    // Row k becomes the reflection's vector v in its elements from k on; the reflection is 1 - factor v vᵀ.
    weft::detail::for_each_index(
        device, {"optimizer", 2 * n * sizeof(A)}, 1, KOKKOS_LAMBDA(const std::size_t) {
          A* const v = x + k * n + k;
          const double square = detail::dot(n - k, v, v), norm = Kokkos::sqrt(square), first = double(v[0]);
          const double moved = first < 0 ? first - norm : first + norm;
          v[0] = A(moved);
          const double length = square - first * first + moved * moved;
          factors[k] = square > least * least * *total ? A(2 / length) : A(0);  // otherwise only rounding is left
        });
    weft::detail::for_each_index(
        device, {"optimizer", 2 * (n - k) * (n - k) * sizeof(A)}, n - k - 1, KOKKOS_LAMBDA(const std::size_t i) {
          const A* const v = x + k * n + k;
          A* const row = x + (k + 1 + i) * n + k;
          const A by = A(double(factors[k]) * detail::dot(n - k, v, static_cast<const A*>(row)));
          for (std::size_t j = 0; j < n - k; ++j) row[j] = row[j] - by * v[j];
        });
  }
  weft::detail::for_each_index(
      device, {"optimizer", 2 * n * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        A* const row = basis + i * n;
        for (std::size_t j = 0; j < n; ++j) row[j] = j == i ? A(1) : A(0);
        for (std::size_t k = n; k-- > 0;) {
          const A* const v = x + k * n + k;
          const A by = A(double(factors[k]) * detail::dot(n - k, v, static_cast<const A*>(row) + k));
          for (std::size_t j = 0; j < n - k; ++j) row[k + j] = row[k + j] - by * v[j];
        }
      });
}

}  // namespace weft::kernels
