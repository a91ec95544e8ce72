// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block sizes of the arena for a number of bytes. Separate from the arena, so that a plan can compute the same sizes without
// Kokkos.

#include <algorithm>
#include <bit>
#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// Rounds up to classes of 1/8 of a power of two: at most 12.5 % is wasted, and similar sizes share their blocks.
constexpr std::size_t block_bytes(std::size_t bytes) {
  if (bytes <= 1024) return (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

/// The block size for data that lives as long as the model: no other data would reuse the block, so it is only rounded up to a
/// cache line.
constexpr std::size_t persistent_block_bytes(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64; }

}  // namespace weft::detail
