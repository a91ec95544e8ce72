// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over the rows of a matrix, one per column, for gradients of biases and gains. Eight rows at a time are added in registers
// before they are added to the result. So memory is read in long runs and a float sum of many rows stays accurate (the error
// grows with rows / 8).

#include <algorithm>
#include <cstddef>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// One output per sum, of N.
template <class A, int N>
struct Outputs {
  A* pointer[N];
};

/// The number of columns per piece, from the number of threads. Each column is summed separately, so results do not depend on it.
template <class V, class Exec>
std::size_t columns_of_piece(Device<Exec>& device, std::size_t rows, std::size_t columns) {
  const std::size_t group = 4 * V::size, threads = threads_for(device, rows * columns);
  return std::max(group, (columns / threads + group - 1) / group * group);
}

/// outputs[k][c] (+)= the sum over rows of term(row, c, count, k-th sum). `Term` has `void operator()(row, c, count, V
/// (&sums)[N])`, which adds the row's terms of columns [c, c + count) to `sums`.
template <class V, int N, class Exec, class Term, class A>
requires(on_host<Exec>) void sum_rows(Device<Exec>& device, Traffic terms, std::size_t rows, std::size_t columns, Term term,
                                      Outputs<A, N> outputs, bool accumulate) {
  const std::size_t width = columns_of_piece<V>(device, rows, columns);
  for_each_piece(
      device, {terms.kind, terms.bytes + (accumulate ? 2 : 1) * N * columns * sizeof(A)}, (columns + width - 1) / width,
      KOKKOS_LAMBDA(std::size_t item, std::size_t) {
        constexpr std::size_t block = 8;
        const std::size_t first = item * width, here = columns - first < width ? columns - first : width;
        for (std::size_t row = 0; row < rows || row == 0; row += block) {
          const bool add = accumulate || row != 0, whole = row + block <= rows;
          sweep<V>(here, [&](std::size_t i, std::size_t count) {
            V sums[N];
            for (int k = 0; k < N; ++k) sums[k] = V(A(0));
            if (whole)
              for (std::size_t r = 0; r < block; ++r) term(row + r, first + i, count, sums);
            else
              for (std::size_t r = row; r < rows; ++r) term(r, first + i, count, sums);
            for (int k = 0; k < N; ++k) {
              A* out = outputs.pointer[k] + first + i;
              (add ? V::load(out, count) + sums[k] : sums[k]).store(out, count);
            }
          });
        }
      });
}

/// On devices: sums of blocks of rows in parallel, then sums of blocks of those, until few are left.
template <class V, int N, class Exec, class Term, class A>
requires(!on_host<Exec>) void sum_rows(Device<Exec>& device, Traffic terms, std::size_t rows, std::size_t columns, Term term,
                                       Outputs<A, N> outputs, bool accumulate) {
  constexpr std::size_t block = 16, few = 32;
  const std::size_t pieces = (columns + V::size - 1) / V::size;
  std::size_t blocks = std::max<std::size_t>(1, (rows + block - 1) / block);
  weft::detail::Buffer buffer = device.allocate(blocks * columns * N * sizeof(A));
  A* partial = static_cast<A*>(buffer.get());  // [blocks, N, columns]
  for_each(
      device, {terms.kind, terms.bytes + blocks * columns * N * sizeof(A)}, blocks * pieces, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t b = item / pieces, column = item % pieces * V::size,
                          end = (b + 1) * block < rows ? (b + 1) * block : rows,
                          count = columns - column < V::size ? columns - column : V::size;
        V sums[N];
        for (int k = 0; k < N; ++k) sums[k] = V(A(0));
        for (std::size_t row = b * block; row < end; ++row) term(row, column, count, sums);
        for (int k = 0; k < N; ++k) sums[k].store(partial + (b * N + std::size_t(k)) * columns + column, count);
      });
  const std::size_t width = columns * N;
  while (blocks > few) {
    const std::size_t left = (blocks + few - 1) / few, before = blocks;
    weft::detail::Buffer next = device.allocate(left * width * sizeof(A));
    A* const sums = static_cast<A*>(next.get());
    const A* const from = partial;
    for_each(
        device, {terms.kind, (before + left) * width * sizeof(A)}, left * width, KOKKOS_LAMBDA(std::size_t item) {
          const std::size_t first = item / width * few, end = first + few < before ? first + few : before;
          A sum = 0;
          for (std::size_t b = first; b < end; ++b) sum += from[b * width + item % width];
          sums[item] = sum;
        });
    buffer = std::move(next), partial = sums, blocks = left;
  }
  const A* const from = partial;
  for_each(
      device, {terms.kind, (blocks + (accumulate ? 2 : 1)) * width * sizeof(A)}, width, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t k = item / columns, column = item % columns;
        A sum = accumulate ? outputs.pointer[k][column] : A(0);
        for (std::size_t b = 0; b < blocks; ++b) sum += from[b * width + item];
        outputs.pointer[k][column] = sum;
      });
}

/// The term of a plain sum over rows.
template <class V, class T>
struct LoadRow {
  const T* x;
  std::size_t ld;
  KOKKOS_FORCEINLINE_FUNCTION void operator()(std::size_t row, std::size_t column, std::size_t count, V (&sums)[1]) const {
    sums[0] = sums[0] + V::load(x + row * ld + column, count);
  }
};

}  // namespace weft::kernels::detail
