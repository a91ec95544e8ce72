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

/// matmul for T = C = accumulate_t<T>. The same bits for any number of threads, and for a row whatever the number of rows. A
/// product of one block of rows, as in decoding, packs each panel just before its use, so the right matrix is read once.
template <class T, class Exec>
void matmul_tiles(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, T* c, const T* bias) {
  using V = lanes_for<Exec, T>;
  using Tiles = NumberTiles<V, T>;
  constexpr std::size_t columns = Tiles::columns, row_block = 64;
  const std::size_t panels = (s.n + columns - 1) / columns, edge = s.m % tile_rows, whole = s.m - edge;
  const bool one_block = s.m <= row_block;
  const std::size_t groups = one_block ? std::min(panels, std::size_t(device.threads())) : panels;
  const weft::detail::Buffer buffer = device.allocate((groups * columns + tile_rows) * s.k * sizeof(T));
  T* const packed = static_cast<T*>(buffer.get());       // [groups, k, columns]: panels, one at a time of each group
  T* const edge_rows = packed + groups * columns * s.k;  // [tile_rows, k]: the rows of a last, partial tile
  const auto pack_edge_rows = [=] {
    for (std::size_t row = 0; row < tile_rows; ++row)
      for (std::size_t i = 0; i < s.k; ++i)
        edge_rows[row * s.k + i] = row >= edge ? T(0) : s.transpose_a ? a[i * s.lda + whole + row] : a[(whole + row) * s.lda + i];
  };
  const auto pack = [=](std::size_t panel, T* to) {
    const std::size_t first = panel * columns, here = std::min(columns, s.n - first);
    if (s.transpose_b) return Tiles::right_transposed(here, s.k, columns, b + first * s.ldb, s.ldb, to);
    for (std::size_t i = 0; i < s.k; ++i)
      for (std::size_t j = 0; j < columns; ++j) to[i * columns + j] = j < here ? b[i * s.ldb + first + j] : T(0);
  };
  const auto multiply = [=](std::size_t block, std::size_t panel, const T* right) {
    T tile[tile_rows * columns];
    const std::size_t column = panel * columns, here = std::min(columns, s.n - column);
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
  };
  if (one_block) {
    for_each(device, {"packing", 2 * edge * s.k * sizeof(T)}, edge != 0, [=](std::size_t) { pack_edge_rows(); });
    return for_each(device, {"product", matmul_bytes<T, T>(s)}, groups, [=](std::size_t group) {
      T* const right = packed + group * columns * s.k;
      for (std::size_t panel = group * panels / groups; panel < (group + 1) * panels / groups; ++panel) {
        pack(panel, right);
        multiply(0, panel, right);
      }
    });
  }
  for_each(device, {"packing", (s.n + panels * columns) * s.k * sizeof(T)}, panels + (edge != 0), [=](std::size_t panel) {
    if (panel == panels) return pack_edge_rows();
    pack(panel, packed + panel * columns * s.k);
  });
  for_each(device, {"product", matmul_bytes<T, T>(s)}, (s.m + row_block - 1) / row_block, [=](std::size_t block) {
    for (std::size_t panel = 0; panel < panels; ++panel) multiply(block, panel, packed + panel * columns * s.k);
  });
}

}  // namespace weft::kernels::detail
