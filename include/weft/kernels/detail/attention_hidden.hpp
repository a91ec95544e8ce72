// SPDX-License-Identifier: Apache-2.0
#pragma once
// Masks in the tiles of host attention: the keys that a tile of rows computes, and the scores to hide.
//
//   const KeySpan span = hidden.tile_keys(sequence, first, block, block_size);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>

namespace weft::kernels::detail {

/// The keys [from, end) of a block that a tile computes, relative to the block's first key.
struct KeySpan {
  std::size_t from, end;
  bool empty() const { return end <= from; }
};

/// True if any, or every, byte is nonzero. Tests eight at a time, since most tiles are completely visible or completely hidden.
inline bool any_byte(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t word = 0, found = 0;
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) std::memcpy(&word, bytes + i, 8), found |= word;
  for (; i < count; ++i) found |= bytes[i];
  return found != 0;
}
inline bool every_byte(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t word = 0, zeros = 0;
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    std::memcpy(&word, bytes + i, 8), zeros |= (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;
  for (; i < count; ++i) zeros |= std::uint64_t(bytes[i] == 0);
  return zeros == 0;
}

/// The mask of a shape that has ranges, for tiles whose spans are multiples of `unit`.
template <class A>
struct HiddenKeys {
  const AttentionShape& shape;
  std::size_t unit;

  /// The keys for tile_rows rows from `first` on. Both ends are multiples of `unit`, and increase from tile to tile.
  KeySpan tile_keys(std::size_t sequence, std::size_t first, std::size_t block, std::size_t block_size) const {
    const std::size_t ranges = sequence * shape.length, last = std::min(first + tile_rows, shape.length) - 1;
    const std::size_t from = std::max(std::size_t(shape.mask.first_key[ranges + first]), block),
                      end = std::min(std::size_t(shape.mask.end_key[ranges + last]), block + block_size);
    if (end <= from) return {0, 0};
    return {(from - block) / unit * unit, (end - block + unit - 1) / unit * unit};
  }
  /// The keys of the sequence that any of `rows` rows can use, from the first one's to the last one's.
  KeySpan block_keys(std::size_t sequence, std::size_t first, std::size_t rows) const {
    const std::size_t ranges = sequence * shape.length;
    return {std::size_t(shape.mask.first_key[ranges + first]), std::size_t(shape.mask.end_key[ranges + first + rows - 1])};
  }
  /// True if arrays hide all keys of a tile from its rows.
  bool all_hidden(std::size_t sequence, std::size_t head, std::size_t first, std::size_t block, const KeySpan& span) const {
    if (!shape.mask.arrays()) return false;
    const std::size_t from = block + span.from, count = std::min(block + span.end, shape.keys) - from,
                      rows = shape.mask.query_step == 0 ? 1 : std::min(tile_rows, shape.length - first);
    for (std::size_t row = first; row < first + rows; ++row) {
      const std::size_t place = shape.mask.place(sequence, head, row) + from;
      if (shape.mask.visible != nullptr && !any_byte(shape.mask.visible + place, count)) continue;
      for (std::size_t key = 0; key < count; ++key)
        if (shape.mask.template term<A>(place + key) != -std::numeric_limits<A>::infinity()) return false;
    }
    return true;
  }
  /// Sets the scores of a row's hidden keys to -infinity. `scores` points to the score of the block's first key.
  void hide(A* scores, std::size_t sequence, std::size_t head, std::size_t row, std::size_t block, const KeySpan& span,
            A scale) const {
    if (row >= shape.length) return;
    const A lowest = -std::numeric_limits<A>::infinity();
    const std::size_t range = sequence * shape.length + row;
    const auto in_block = [&](std::int32_t key) {
      return std::clamp(std::size_t(key) < block ? 0 : std::size_t(key) - block, span.from, span.end);
    };
    const std::size_t from = in_block(shape.mask.first_key[range]), end = std::max(from, in_block(shape.mask.end_key[range]));
    std::fill(scores + span.from, scores + from, lowest);
    std::fill(scores + end, scores + span.end, lowest);
    if (!shape.mask.arrays()) return;
    const std::size_t place = shape.mask.place(sequence, head, row) + block;
    const std::uint8_t* const visible = shape.mask.visible == nullptr ? nullptr : shape.mask.visible + place;
    const A* const added = shape.mask.added == nullptr ? nullptr : static_cast<const A*>(shape.mask.added) + place;
    if (added != nullptr)
      for (std::size_t j = from; j < end; ++j) scores[j] += added[j] / scale;
    if (visible != nullptr && !every_byte(visible + from, end - from))
      for (std::size_t j = from; j < end; ++j) scores[j] = visible[j] == 0 ? lowest : scores[j];
  }
};

}  // namespace weft::kernels::detail
