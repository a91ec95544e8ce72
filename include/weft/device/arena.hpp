// SPDX-License-Identifier: Apache-2.0
#pragma once
// A caching allocator: a training step asks for the same sizes again and again, and returning activations to the system costs
// 20 % of a step. Freed blocks are kept by size and handed out again; they are returned when the arena ends or memory is full. One
// arena belongs to one rank and is not safe to share between threads; buffers may outlive it.

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>
#include <weft/device/block_bytes.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/runtime.hpp>
#endif

namespace weft {

namespace detail {
/// Where an arena's blocks come from. `take` gives null where the memory is full.
template <class MemorySpace>
struct System {
  static void* take(std::size_t bytes) {
    try {
      return Kokkos::kokkos_malloc<MemorySpace>("weft", bytes);
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  static void give_back(void* block) { Kokkos::kokkos_free<MemorySpace>(block); }
  static std::string room() { return ""; }
};
#ifdef KOKKOS_ENABLE_CUDA
/// Of the calling thread's current GPU: Kokkos would take those of its own, and a rank may be on another.
template <>
struct System<Kokkos::CudaSpace> {
  static void* take(std::size_t bytes) {
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, bytes);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    cuda_check(status, "cudaMalloc");
    return block;
  }
  static void give_back(void* block) { cuda_report(cudaFree(block), "cudaFree"); }
  static std::string room() {
    std::size_t left = 0, all = 0;
    cuda_check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    return joined({", ", left, " of ", all, " are free"});
  }
};
#endif
}  // namespace detail

/// Bytes that an arena counts.
struct MemoryUse {
  std::size_t current = 0;   ///< in use now
  std::size_t peak = 0;      ///< largest value of `current` so far
  std::size_t reserved = 0;  ///< taken from the system
};

namespace detail {

/// A shared handle of a block of bytes; the last one gives the block back to its arena.
class Buffer : public std::shared_ptr<void> {
 public:
  using std::shared_ptr<void>::shared_ptr;
  Buffer() = default;
  Buffer(std::shared_ptr<void> other) noexcept : std::shared_ptr<void>(std::move(other)) {}
  // Copies and ends out of line: what a program does most often.
  WEFT_OUT_OF_LINE Buffer(const Buffer& other) noexcept : std::shared_ptr<void>(other) {}
  WEFT_OUT_OF_LINE Buffer(Buffer&& other) noexcept : std::shared_ptr<void>(std::move(other)) {}
  WEFT_OUT_OF_LINE Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  WEFT_OUT_OF_LINE void reset() noexcept { std::shared_ptr<void>::reset(); }
  WEFT_OUT_OF_LINE ~Buffer() {}
};

/// Blocks in Kokkos' MemorySpace, 64-byte aligned there where Kokkos' allocations are. On a GPU a block may be handed out again while
/// kernels that were given it still run: those of the same stream come one after the other, and who uses another stream holds the
/// block until that is done.
template <class MemorySpace>
class Arena {
  struct Free {
    std::size_t size;
    List<void*> blocks;
  };
  struct State {
    List<Free> free;  // by size
    MemoryUse use;
    ~State() { give_back(); }

    WEFT_OUT_OF_LINE List<void*>& blocks(std::size_t size) {
      std::size_t first = 0;
      for (std::size_t end = free.size(); first < end;) {
        const std::size_t middle = (first + end) / 2;
        if (free[middle].size < size) first = middle + 1;
        else end = middle;
      }
      if (first == free.size() || free[first].size != size) {
        free.push_back({size, {}});
        for (std::size_t i = free.size() - 1; i > first; --i) std::swap(free[i], free[i - 1]);
      }
      return free[first].blocks;
    }

    /// Returns all blocks that nobody uses to the system.
    void give_back() {
      for (Free& of_size : free)
        for (List<void*>& unused = of_size.blocks; !unused.empty(); unused.pop_back(), use.reserved -= of_size.size)
          System<MemorySpace>::give_back(unused.back());
    }
  };

 public:
  /// A block of at least `bytes`. Throws MemoryError when the memory space is full even without the blocks that nobody uses.
  Buffer allocate(std::size_t bytes) { return take(block_bytes(bytes)); }
  /// The same for what lives as long as the model (parameters, optimizer state): nothing else would share its block, so it is
  /// not made larger than a cache line asks for.
  Buffer allocate_persistent(std::size_t bytes) { return take(persistent_block_bytes(bytes)); }

  /// From now on this arena hands out what was the other's, and the reverse: blocks that a recorded step writes each time it is
  /// launched must go to nobody else. Blocks in use go back to where they came from.
  void exchange(Arena& other) noexcept { state_.swap(other.state_); }

  const MemoryUse& use() const { return state_->use; }
  void reset_peak() { state_->use.peak = state_->use.current; }

 private:
  Buffer take(std::size_t size) {
    List<void*>& blocks = state_->blocks(size);
    void* block = nullptr;
    if (blocks.empty()) {
      block = taken_from_system(size);
      state_->use.reserved += size;
    } else {
      block = blocks.back();
      blocks.pop_back();
    }
    state_->use.current += size;
    if (state_->use.current > state_->use.peak) state_->use.peak = state_->use.current;
    return Buffer(block, [state = state_, size](void* freed) {
      state->use.current -= size;
      state->blocks(size).push_back(freed);
    });
  }

  WEFT_COLD void* taken_from_system(std::size_t size) {
    using System = detail::System<MemorySpace>;
    if (void* block = System::take(size)) return block;
    state_->give_back();
    if (void* block = System::take(size)) return block;
    throw_error<MemoryError>({"out of memory: ", MemorySpace::name(), " memory has no room for ", size, " more bytes; this rank uses ", state_->use.current, " there",
                              System::room(), ": a smaller model or micro-batch, recomputation, or more ranks to share it"});
  }

  std::shared_ptr<State> state_ = new_shared<State>();
};

}  // namespace detail

}  // namespace weft
