// SPDX-License-Identifier: Apache-2.0
#pragma once
// The source of an arena's blocks: a memory space of Kokkos, the addresses of a rehearsal, or a heap that the processes of one
// machine share.

#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::detail {

struct BlockSource {
  /// At least `bytes` bytes, aligned to 64; null if there is no room.
  void* (*take)(std::size_t bytes);
  void (*give_back)(void* block);
};

}  // namespace weft::detail
