// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix product in register tiles on hosts, for types that oneDNN lacks (double) and for programs without oneDNN. The right
// matrix is packed into panels of a tile's width, and each panel is multiplied by blocks of rows.

#include <algorithm>
#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>

namespace weft::kernels::detail {

/// matmul for T = C = accumulate_t<T>. The same bits for any number of threads.
template <class T, class Exec>
void matmul_tiles(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, T* c, const T* bias) {
  using V = lanes_for<Exec, T>;
  using Tiles = NumberTiles<V, T>;
  constexpr std::size_t columns = Tiles::columns, row_block = 64;
  const std::size_t panels = (s.n + columns - 1) / columns, edge = s.m % tile_rows, whole = s.m - edge;
  const weft::detail::Buffer buffer = device.allocate((panels * columns + tile_rows) * s.k * sizeof(T));
  T* const packed = static_cast<T*>(buffer.get());       // [panels, k, columns]
  T* const edge_rows = packed + panels * columns * s.k;  // [tile_rows, k]: the rows of a last, partial tile
  const auto pack_edge_rows = [=] {
    for (std::size_t row = 0; row < tile_rows; ++row)
      for (std::size_t i = 0; i < s.k; ++i)
        edge_rows[row * s.k + i] = row >= edge ? T(0) : s.transpose_a ? a[i * s.lda + whole + row] : a[(whole + row) * s.lda + i];
  };
  for_each(device, {"packing", (s.n + panels * columns) * s.k * sizeof(T)}, panels + (edge != 0), [=](std::size_t panel) {
    if (panel == panels) return pack_edge_rows();
    const std::size_t first = panel * columns, here = std::min(columns, s.n - first);
    T* const to = packed + panel * columns * s.k;
    for (std::size_t i = 0; i < s.k; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        to[i * columns + j] = j >= here ? T(0) : s.transpose_b ? b[(first + j) * s.ldb + i] : b[i * s.ldb + first + j];
  });
  for_each(device, {"product", matmul_bytes<T, T>(s)}, (s.m + row_block - 1) / row_block, [=](std::size_t block) {
    T tile[tile_rows * columns];
    for (std::size_t panel = 0; panel < panels; ++panel) {
      const std::size_t column = panel * columns, here = std::min(columns, s.n - column);
      const T* const right = packed + panel * columns * s.k;
      for (std::size_t row = block * row_block; row < std::min((block + 1) * row_block, s.m); row += tile_rows) {
        if (row == whole) Tiles::template multiply<false>(s.k, edge_rows, s.k, right, columns, tile, columns, false);
        else if (s.transpose_a) Tiles::template multiply<true>(s.k, a + row, s.lda, right, columns, tile, columns, false);
        else Tiles::template multiply<false>(s.k, a + row * s.lda, s.lda, right, columns, tile, columns, false);
        for (std::size_t r = 0; r < std::min(tile_rows, s.m - row); ++r)
          sweep<V>(here, [&](std::size_t j, std::size_t count) {
            T* const to = c + (row + r) * s.ldc + column + j;
            V sum = V::load(tile + r * columns + j);
            if (bias != nullptr) sum = sum + V::load(bias + column + j, count);
            if (s.accumulate) sum = sum + V::load(to, count);
            sum.store(to, count);
          });
      }
    }
  });
}

}  // namespace weft::kernels::detail
