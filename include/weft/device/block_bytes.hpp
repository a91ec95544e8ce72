// SPDX-License-Identifier: Apache-2.0
#pragma once
// How large a block the arena hands out for a number of bytes. Apart from the arena, so that a plan can count as it does
// without Kokkos.

#include <algorithm>
#include <bit>
#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// Classes of 1/8 of a power of two: at most 12.5 % is wasted, and sizes that differ a little share their blocks.
constexpr std::size_t block_bytes(std::size_t bytes) {
  if (bytes <= 1024) return (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

/// Of what lives as long as the model: nothing else would share its block, so it is not made larger than a cache line asks for.
constexpr std::size_t persistent_block_bytes(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64; }

}  // namespace weft::detail
