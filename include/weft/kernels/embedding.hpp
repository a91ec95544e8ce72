// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a table by token id. A rank may hold only some of the table's rows (vocabulary parallelism). Ids of other ranks give
// zero rows, so the sum over the ranks is the whole embedding.
//
//   kernels::embedding_forward(device, tokens, width, ids, table, first, rows_here, y);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/cuda/token_order.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/token_order.hpp>

namespace weft::kernels {

/// y[t, :] = table[ids[t] - first, :], or 0 if ids[t] is not in [first, first + rows_here). y is [tokens, width], table
/// [rows_here, width].
template <class T, class Exec>
void embedding_forward(Device<Exec>& device, std::size_t tokens, std::size_t width, const std::int32_t* ids, const T* table,
                       std::int64_t first, std::size_t rows_here, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using A = accumulate_t<T>;
  detail::for_each_row(
      device, {"embedding", tokens * (2 * width * sizeof(T) + sizeof(std::int32_t))}, tokens,
      KOKKOS_LAMBDA(std::size_t token, Team team) {
        const std::int64_t row = std::int64_t(ids[token]) - first;
        const bool here = row >= 0 && row < std::int64_t(rows_here);
        const T* from = table + (here ? std::size_t(row) * width : 0);
        T* to = y + token * width;
        if (here)
          team.template sweep<V>(width, [&](std::size_t i, std::size_t count) { V::load(from + i, count).store(to + i, count); });
        else team.template sweep<V>(width, [&](std::size_t i, std::size_t count) { V(A(0)).store(to + i, count); });
      });
}

/// dtable[ids[t] - first, :] += dy[t, :] for the ids in [first, first + rows_here), on hosts in the order of the tokens: the same
/// bits in every run and for any number of threads.
template <class T, class Exec>
requires(detail::on_host<Exec>) void embedding_backward(Device<Exec>& device, std::size_t tokens, std::size_t width,
                                                        const std::int32_t* ids, const T* dy, std::int64_t first,
                                                        std::size_t rows_here, accumulate_t<T>* dtable) {
  using V = detail::lanes_for<Exec, T>;
  constexpr std::size_t group = V::size == 1 ? 1 : 8 * V::size;  // columns of one work item: tokens are never split
  detail::for_each(
      device, {"embedding", tokens * (width * (sizeof(T) + 2 * sizeof(accumulate_t<T>)) + sizeof(std::int32_t))},
      (width + group - 1) / group, KOKKOS_LAMBDA(std::size_t g) {
        const std::size_t column = g * group, columns = width - column < group ? width - column : group;
        for (std::size_t token = 0; token < tokens; ++token) {
          const std::int64_t row = std::int64_t(ids[token]) - first;
          if (row < 0 || row >= std::int64_t(rows_here)) continue;
          const T* from = dy + token * width + column;
          accumulate_t<T>* to = dtable + std::size_t(row) * width + column;
          detail::sweep<V>(columns, [&](std::size_t i, std::size_t count) {
            (V::load(to + i, count) + V::load(from + i, count)).store(to + i, count);
          });
        }
      });
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void embedding_backward(Device<Exec>& device, std::size_t tokens, std::size_t width,
                                                         const std::int32_t* ids, const T* dy, std::int64_t first,
                                                         std::size_t rows_here, accumulate_t<T>* dtable) {
  detail::sum_by_id(device, tokens, width, ids, dy, first, rows_here, dtable);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
