// SPDX-License-Identifier: Apache-2.0
#pragma once
// A caching allocator: a training step asks for the same sizes again and again, and returning activations to the system costs
// 20 % of a step. Freed blocks are kept by size and handed out again; nothing is returned before the arena ends. One arena
// belongs to one rank and is not safe to share between threads; buffers may outlive it.

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <weft/core/list.hpp>
#include <weft/tensor/block_bytes.hpp>

namespace weft {

/// Bytes that an arena counts.
struct MemoryUse {
  std::size_t current = 0;   ///< in use now
  std::size_t peak = 0;      ///< largest value of `current` so far
  std::size_t reserved = 0;  ///< taken from the system
};

/// A shared handle of a block of bytes; the last one gives the block back to its arena.
using Buffer = std::shared_ptr<void>;

/// Blocks in Kokkos' MemorySpace, 64-byte aligned there where Kokkos' allocations are.
template <class MemorySpace>
class Arena {
  struct State {
    std::unordered_map<std::size_t, List<void*>> free;
    MemoryUse use;
    ~State() {
      for (auto& [size, blocks] : free)
        for (void* block : blocks) Kokkos::kokkos_free<MemorySpace>(block);
    }
  };

 public:
  /// A block of at least `bytes`. Throws Kokkos' allocation error when the memory space is full.
  Buffer allocate(std::size_t bytes) { return take(block_bytes(bytes)); }
  /// The same for what lives as long as the model (parameters, optimizer state): nothing else would share its block, so it is
  /// not made larger than a cache line asks for.
  Buffer allocate_lasting(std::size_t bytes) { return take(lasting_block_bytes(bytes)); }

  const MemoryUse& use() const { return state_->use; }
  void reset_peak() { state_->use.peak = state_->use.current; }

 private:
  Buffer take(std::size_t size) {
    auto& blocks = state_->free[size];
    void* block = nullptr;
    if (blocks.empty()) {
      block = Kokkos::kokkos_malloc<MemorySpace>("weft", size);
      state_->use.reserved += size;
    } else {
      block = blocks.back();
      blocks.pop_back();
    }
    state_->use.current += size;
    if (state_->use.current > state_->use.peak) state_->use.peak = state_->use.current;
    return Buffer(block, [state = state_, size](void* freed) {
      state->use.current -= size;
      state->free[size].push_back(freed);
    });
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace weft
