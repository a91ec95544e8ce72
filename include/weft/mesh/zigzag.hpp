// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tokens of a sequence on a context-parallel rank. Under a causal mask late tokens need more work than early ones. So a
// sequence is divided into 2 · ranks chunks, and rank r holds chunk r and chunk 2 · ranks - 1 - r (zig-zag, Zhu 2024;
// Megatron-LM's load balancing). Every rank has the same work under a causal mask without window and documents. With packed
// documents the work depends on where they lie; PackingOptions::balance_cp orders them.
//
//   Zigzag cut{length, ranks, rank};
//   cut.position(i);                // position of this rank's i-th token in its sequence

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <Kokkos_Core.hpp>

#include <weft/core/error.hpp>

namespace weft::detail {

struct Zigzag {
  std::size_t length = 0;  ///< tokens per sequence
  std::size_t ranks = 1, rank = 0;

  /// Tokens per sequence on one rank.
  KOKKOS_INLINE_FUNCTION std::size_t local() const { return length / ranks; }
  /// Tokens per chunk. On one rank a sequence is one chunk.
  KOKKOS_INLINE_FUNCTION std::size_t chunk() const { return ranks == 1 ? length : length / (2 * ranks); }
  /// The position of the i-th local token of a sequence.
  KOKKOS_INLINE_FUNCTION std::size_t position(std::size_t i) const {
    return i < chunk() ? rank * chunk() + i : (2 * ranks - 2 - rank) * chunk() + i;
  }
  /// The number of local tokens of a sequence before `position`.
  KOKKOS_INLINE_FUNCTION std::size_t before(std::size_t position) const {
    const std::size_t early = rank * chunk(), late = (2 * ranks - 1 - rank) * chunk();
    const std::size_t first = position < early ? 0 : position - early, second = position < late ? 0 : position - late;
    return (first < chunk() ? first : chunk()) + (second < chunk() ? second : ranks == 1 ? 0 : chunk());
  }
  /// The global row of the i-th local row, for contiguous sequences.
  KOKKOS_INLINE_FUNCTION std::size_t row(std::size_t i) const { return i / local() * length + position(i % local()); }

  /// Throws ShapeError unless the sequence divides into whole chunks.
  void require() const {
    if (ranks > 1 && (length == 0 || length % (2 * ranks) != 0))
      throw ShapeError("sequence(" + std::to_string(length) + ") % (2 * cp(" + std::to_string(ranks) +
                       ")) != 0: context parallelism cuts a sequence into two chunks for each rank; sequence can be " +
                       (length < 2 * ranks ? "" : std::to_string(length / (2 * ranks) * 2 * ranks) + " or ") +
                       std::to_string((length / (2 * ranks) + 1) * 2 * ranks));
  }

  /// Appends this rank's part of [sequences, length] values to `mine`.
  template <class T>
  void take(std::span<const T> all, std::vector<T>& mine) const {
    const std::size_t begin = mine.size();
    mine.resize(begin + all.size() / ranks);
    for (std::size_t i = begin; i < mine.size(); ++i) mine[i] = all[row(i - begin)];
  }
};

}  // namespace weft::detail
