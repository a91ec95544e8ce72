// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over the rows of a matrix, one for each column: gradients of biases and gains. Columns are walked in groups that fit
// into registers, rows in blocks of 64 whose sums are added up, so that a float sum of many rows stays accurate.

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// One output for each of N sums.
template <class A, int N>
struct Outputs {
  A* pointer[N];
};

/// outputs[k][c] (+)= sum over rows of term(row, c, count, k-th sum). `Term` has `void operator()(row, c, count, V (&sums)[N])`
/// that adds the row's terms of columns [c, c + count) to sums.
template <class V, int N, class Exec, class Term, class A>
void sum_rows(Device<Exec>& device, std::size_t rows, std::size_t columns, Term term, Outputs<A, N> outputs, bool accumulate) {
  constexpr std::size_t group = V::size == 1 ? 1 : 4 * V::size;
  for_each(
      device, (columns + group - 1) / group, KOKKOS_LAMBDA(std::size_t g) {
        constexpr int pieces = V::size == 1 ? 1 : 4;
        const std::size_t first = g * group, count = columns - first < group ? columns - first : group;
        V total[pieces][N];
        for (int p = 0; p < pieces; ++p)
          for (int k = 0; k < N; ++k) total[p][k] = V(A(0));
        const auto add_rows = [&](auto all) {
          for (std::size_t block = 0; block < rows; block += 64) {
            const std::size_t end = block + 64 < rows ? block + 64 : rows;
            V part[pieces][N];
            for (int p = 0; p < pieces; ++p)
              for (int k = 0; k < N; ++k) part[p][k] = V(A(0));
            for (std::size_t row = block; row < end; ++row)
              for (int p = 0; p < pieces; ++p) {
                const std::size_t at = p * V::size;
                if (all || at < count) term(row, first + at, all || count - at > V::size ? V::size : count - at, part[p]);
              }
            for (int p = 0; p < pieces; ++p)
              for (int k = 0; k < N; ++k) total[p][k] = total[p][k] + part[p][k];
          }
        };
        if (count == group) add_rows(std::true_type{});
        else add_rows(std::false_type{});
        for (int p = 0; p < pieces; ++p)
          for (int k = 0; k < N; ++k) {
            const std::size_t at = p * V::size;
            if (at >= count) continue;
            const std::size_t here = count - at > V::size ? V::size : count - at;
            A* out = outputs.pointer[k] + first + at;
            (accumulate ? V::load(out, here) + total[p][k] : total[p][k]).store(out, here);
          }
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
