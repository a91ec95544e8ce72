// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix product in register tiles on hosts, for types that oneDNN lacks (double) and for programs without oneDNN. The right
// matrix is packed into panels of a tile's width, and each panel is multiplied by blocks of rows. A transposed left matrix is
// packed into tiles.

#include <algorithm>
#include <cstddef>

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
  constexpr std::size_t columns = Tiles::columns, block_tiles = 8, row_block = block_tiles * tile_rows;
  const std::size_t panels = (s.n + columns - 1) / columns, tiles = (s.m + tile_rows - 1) / tile_rows;
  const bool one_block = s.m <= row_block;
  const std::size_t groups = one_block ? std::min(panels, std::size_t(device.threads())) : panels;
  // Tiles of rows that are packed: all of a transposed matrix, whose columns lie far apart; else the last one if it is partial.
  const std::size_t in_place = s.transpose_a ? 0 : s.m / tile_rows, packed_tiles = tiles - in_place;
  const weft::detail::Buffer buffer = device.allocate((groups * columns + packed_tiles * tile_rows) * s.k * sizeof(T));
  T* const packed = static_cast<T*>(buffer.get());  // [groups, k, columns]: panels, one at a time of each group
  T* const left = packed + groups * columns * s.k;  // [packed_tiles, k, tile_rows]
  const auto pack_left = [=](std::size_t block) {   // along a transposed matrix's rows
    const std::size_t first = block * block_tiles, end = std::min(first + block_tiles, packed_tiles);
    for (std::size_t i = 0; i < s.k; ++i)
      for (std::size_t tile = first; tile < end; ++tile) {
        const std::size_t row = (in_place + tile) * tile_rows, here = std::min(tile_rows, s.m - row);
        T* const to = left + (tile * s.k + i) * tile_rows;
        if (s.transpose_a && here == tile_rows) std::copy_n(a + i * s.lda + row, tile_rows, to);
        else
          for (std::size_t r = 0; r < tile_rows; ++r)
            to[r] = r >= here ? T(0) : s.transpose_a ? a[i * s.lda + row + r] : a[(row + r) * s.lda + i];
      }
  };
  const auto pack = [=](std::size_t panel, T* to) {
    const std::size_t first = panel * columns, here = std::min(columns, s.n - first);
    if (s.transpose_b) return Tiles::right_transposed(here, s.k, columns, b + first * s.ldb, s.ldb, to);
    for (std::size_t i = 0; i < s.k; ++i, to += columns) {
      const T* const from = b + i * s.ldb + first;
      if (here == columns) std::copy_n(from, columns, to);
      else std::fill(std::copy_n(from, here, to), to + columns, T(0));
    }
  };
  const auto multiply = [=](std::size_t block, std::size_t panel, const T* right) {
    T sums[tile_rows * columns];
    const std::size_t column = panel * columns, here = std::min(columns, s.n - column);
    for (std::size_t tile = block * block_tiles; tile < std::min((block + 1) * block_tiles, tiles); ++tile) {
      const std::size_t row = tile * tile_rows;
      const bool whole = bias == nullptr && here == columns && row + tile_rows <= s.m;  // written to c at once
      T* const out = whole ? c + row * s.ldc + column : sums;
      const std::size_t out_step = whole ? s.ldc : columns;
      const bool add = whole && s.accumulate;
      if (tile < in_place) Tiles::template multiply<false>(s.k, a + row * s.lda, s.lda, right, columns, out, out_step, add);
      else
        Tiles::template multiply<true>(s.k, left + (tile - in_place) * s.k * tile_rows, tile_rows, right, columns, out, out_step,
                                       add);
      if (whole) continue;
      for (std::size_t r = 0; r < std::min(tile_rows, s.m - row); ++r)
        sweep<V>(here, [&](std::size_t j, std::size_t count) {
          T* const to = c + (row + r) * s.ldc + column + j;
          V sum = V::load(sums + r * columns + j);
          if (bias != nullptr) sum = sum + V::load(bias + column + j, count);
          if (s.accumulate) sum = sum + V::load(to, count);
          sum.store(to, count);
        });
    }
  };
  const std::size_t left_blocks = (packed_tiles + block_tiles - 1) / block_tiles,
                    left_bytes = 2 * packed_tiles * tile_rows * s.k * sizeof(T);
  if (one_block) {
    for_each(device, {"packing", left_bytes}, left_blocks, pack_left);
    return for_each(device, {"product", matmul_bytes<T, T>(s)}, groups, [=](std::size_t group) {
      T* const right = packed + group * columns * s.k;
      for (std::size_t panel = group * panels / groups; panel < (group + 1) * panels / groups; ++panel) {
        pack(panel, right);
        multiply(0, panel, right);
      }
    });
  }
  const std::size_t right_bytes = (s.n + panels * columns) * s.k * sizeof(T);
  for_each(device, {"packing", left_bytes + right_bytes}, panels + left_blocks, [=](std::size_t item) {
    if (item >= panels) return pack_left(item - panels);
    pack(item, packed + item * columns * s.k);
  });
  for_each(device, {"product", matmul_bytes<T, T>(s)}, (s.m + row_block - 1) / row_block, [=](std::size_t block) {
    for (std::size_t panel = 0; panel < panels; ++panel) multiply(block, panel, packed + panel * columns * s.k);
  });
}

}  // namespace weft::kernels::detail
