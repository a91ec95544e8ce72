// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of rows between arrays of different widths and element types, for the messages of attention over several ranks.
//
//   kernels::cast_rows<float, bfloat16>(device, rows, width, from, from_stride, to, to_stride);

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/mesh/zigzag.hpp>

namespace weft::kernels {

/// to[r, c] = from[r, c], rounded if To is narrower. Rows have `width` values and are from_stride and to_stride values apart.
template <class From, class To, class Exec>
void cast_rows(Device<Exec>& device, std::size_t rows, std::size_t width, const From* from, std::size_t from_stride, To* to,
               std::size_t to_stride) {
  using V = detail::lanes_for<Exec, From>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"copy", rows * width * (sizeof(From) + sizeof(To))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const From* in = from + row * from_stride;
        To* out = to + row * to_stride;
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) { V::load(in + i, count).store(out + i, count); });
      });
}

/// to += from in the first `rows` rows of each sequence; sequences are `step` rows of `width` values apart.
template <class A, class Exec>
void add_rows(Device<Exec>& device, std::size_t sequences, std::size_t rows, std::size_t step, std::size_t width, const A* from,
              A* to) {
  using V = detail::lanes_for<Exec, A>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"elementwise", 3 * sequences * rows * width * sizeof(A)}, sequences * rows,
      KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t at = (item / rows * step + item % rows) * width;
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          (V::load(to + at + i, count) + V::load(from + at + i, count)).store(to + at + i, count);
        });
      });
}

/// Reorders rows from the order of context-parallel ranks, [ranks, rows, width], into the order of their sequences, [ranks *
/// rows, width]; `back` is the inverse.
template <class T, class Exec>
void order_rows(Device<Exec>& device, std::size_t length, std::size_t ranks, std::size_t rows, std::size_t width, const T* from,
                T* to, bool back) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"copy", 2 * ranks * rows * width * sizeof(T)}, ranks * rows, KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t ordered = weft::detail::Zigzag{length, ranks, item / rows}.row(item % rows);
        const T* in = from + (back ? ordered : item) * width;
        T* out = to + (back ? item : ordered) * width;
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) { V::load(in + i, count).store(out + i, count); });
      });
}

/// to[r, c] = the sum over `parts` arrays, `part_step` values apart, of from[r, c], in order and in accumulate_t.
template <class T, class Exec>
void sum_parts(Device<Exec>& device, std::size_t rows, std::size_t width, std::size_t parts, std::size_t part_step, const T* from,
               std::size_t from_stride, T* to, std::size_t to_stride) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"reduction", (parts + 1) * rows * width * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const T* in = from + row * from_stride;
        T* out = to + row * to_stride;
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          V sum = V::load(in + i, count);
          for (std::size_t part = 1; part < parts; ++part) sum = sum + V::load(in + part * part_step + i, count);
          sum.store(out + i, count);
        });
      });
}

/// to[s, r, h, :] = the sum over g of from[s, r, h * group + g, :], in order: the gradient of a key-value head from those of its
/// query heads. `from` is [sequences, rows, kv_heads * group, head_width]; rows of `to` are to_stride values apart, its sequences
/// `step` rows.
template <class A, class Exec>
void sum_heads(Device<Exec>& device, std::size_t sequences, std::size_t rows, std::size_t step, std::size_t kv_heads,
               std::size_t group, std::size_t head_width, const A* from, A* to, std::size_t to_stride) {
  using V = detail::lanes_for<Exec, A>;
  using Team = detail::row_team<Exec>;
  const std::size_t items = sequences * rows * kv_heads;
  detail::for_each_row(
      device, {"reduction", (group + 1) * items * head_width * sizeof(A)}, items, KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t head = item % kv_heads, row = item / kv_heads;
        const A* in = from + item * group * head_width;
        A* out = to + (row / rows * step + row % rows) * to_stride + head * head_width;
        team.template sweep<V>(head_width, [&](std::size_t i, std::size_t count) {
          V sum = V::load(in + i, count);
          for (std::size_t g = 1; g < group; ++g) sum = sum + V::load(in + g * head_width + i, count);
          sum.store(out + i, count);
        });
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
