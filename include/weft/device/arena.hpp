// SPDX-License-Identifier: Apache-2.0
#pragma once
// A caching allocator of device memory. Training steps request the same sizes repeatedly, and returning activations to the system
// would take 20 % of a step. Freed blocks are kept by size and reused. They return to the system when the arena ends or the
// memory is full; so are the counts of buffers, so a warm step allocates nothing. An arena belongs to one rank and is not
// thread-safe; buffers may outlive it.
//
//   Buffer block = device.allocate(bytes);  // returns to the arena with its last copy

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/device/block_bytes.hpp>
#include <weft/device/block_source.hpp>
#include <weft/device/rehearsal.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/memory.hpp>
#endif

namespace weft {

namespace detail {
/// A system's memory. `take` returns null if it is full.
template <class MemorySpace>
struct System {
  static void* take(std::size_t bytes) {
    try {
      return Kokkos::kokkos_malloc<MemorySpace>("weft", bytes);
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  /// Called once before blocks are given back: may wait and throw.
  static void before_give_back() {}
  static void give_back(void* block) { Kokkos::kokkos_free<MemorySpace>(block); }
  static std::string room() { return ""; }
};
#ifdef KOKKOS_ENABLE_CUDA
template <>
struct System<Kokkos::CudaSpace> : gpu::Memory {};
#endif

/// A shared handle of a block of bytes; the last copy returns the block to its arena.
class Buffer : public std::shared_ptr<void> {
 public:
  using std::shared_ptr<void>::shared_ptr;
  Buffer() = default;
  Buffer(std::shared_ptr<void> other) noexcept : std::shared_ptr<void>(std::move(other)) {}
  // Copies and destruction are out of line, since programs do them more often than anything else.
  WEFT_OUT_OF_LINE Buffer(const Buffer& other) noexcept : std::shared_ptr<void>(other) {}
  WEFT_OUT_OF_LINE Buffer(Buffer&& other) noexcept : std::shared_ptr<void>(std::move(other)) {}
  WEFT_OUT_OF_LINE Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  WEFT_OUT_OF_LINE void reset() noexcept { std::shared_ptr<void>::reset(); }
  WEFT_OUT_OF_LINE ~Buffer() {}
};

/// Blocks in Kokkos' MemorySpace, 64-byte aligned if Kokkos' allocations are. On a GPU a block may be reused while kernels that
/// use it still run: kernels of one stream run in order, and a user of another stream must hold the block until that stream is
/// done with it.
template <class MemorySpace>
class Arena {
  struct Free {
    std::size_t size;
    std::vector<void*> blocks;
  };
  // Memory for the count of one buffer's handles.
  union CountRoom {
    CountRoom* next;
    alignas(std::max_align_t) std::byte bytes[80];
  };
  struct State {
    std::vector<Free> free;  // by size
    MemoryUse use;
    BlockSource source{&System<MemorySpace>::take, &System<MemorySpace>::give_back};
    CountRoom* rooms = nullptr;  // unused
    std::size_t buffers = 0;     // with a count in a room
    bool has_arena = true;
    ~State() {
      give_back();
      while (rooms != nullptr) ::operator delete(std::exchange(rooms, rooms->next));
    }
    /// Called when the arena or a buffer is gone: the last one ends the state.
    void end_if_unused() {
      if (!has_arena && buffers == 0) delete this;
    }

    WEFT_OUT_OF_LINE std::vector<void*>& blocks(std::size_t size) {
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

    /// Returns all unused blocks to the system.
    void give_back() {
      for (Free& of_size : free)
        for (std::vector<void*>& unused = of_size.blocks; !unused.empty(); unused.pop_back(), use.reserved -= of_size.size)
          source.give_back(unused.back());
    }
  };

  // Returns a block to its arena.
  struct GiveBack {
    State* state;
    void* block;
    std::size_t size;
    MemoryCategory category;
    void operator()(void*) const {
      state->use.current -= size;
      state->use.by_category[std::size_t(category)] -= size;
      state->blocks(size).push_back(block);
    }
  };
  // Allocates the counts of std::shared_ptr from the rooms of a state, which lives as long as they do.
  template <class T>
  struct CountAllocator {
    using value_type = T;
    State* state;
    explicit CountAllocator(State* of) : state(of) {}
    template <class U>
    CountAllocator(const CountAllocator<U>& other) : state(other.state) {}
    T* allocate(std::size_t) {
      static_assert(sizeof(T) <= sizeof(CountRoom) && alignof(T) <= alignof(CountRoom));
      CountRoom* room = state->rooms;
      if (room == nullptr) room = static_cast<CountRoom*>(::operator new(sizeof(CountRoom)));
      else state->rooms = room->next;
      ++state->buffers;
      return reinterpret_cast<T*>(room);
    }
    void deallocate(T* count, std::size_t) {
      state->rooms = ::new (static_cast<void*>(count)) CountRoom{state->rooms};
      --state->buffers;
      state->end_if_unused();
    }
    template <class U>
    friend bool operator==(const CountAllocator& a, const CountAllocator<U>& b) {
      return a.state == b.state;
    }
  };

 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    state_->has_arena = false;
    state_->end_if_unused();
  }

  /// A block of at least `bytes`. Throws MemoryError if the memory space is full even after unused blocks were returned. Before
  /// it returns blocks of a GPU, it waits for this rank's communication, and throws its errors.
  Buffer allocate(std::size_t bytes) { return take(block_bytes(bytes), MemoryCategory::activations); }
  /// A block for data that lives as long as the model (parameters, optimizer state). No other data would reuse the block, so its
  /// size is only rounded up to a cache line.
  Buffer allocate_persistent(std::size_t bytes, MemoryCategory category = MemoryCategory::other) {
    return take(persistent_block_bytes(bytes), category);
  }

  /// Swaps the contents of two arenas: blocks that a recorded step writes at every launch must not be given to other code. Blocks
  /// in use return to the arena that allocated them.
  void exchange(Arena& other) noexcept { std::swap(state_, other.state_); }

  /// From now on blocks come from `source`, which also takes back those of the former one.
  void take_from(const BlockSource& source) { state_->source = source; }
  /// From now on blocks are addresses without memory. Call it before anything is allocated.
  void rehearse() { state_->source = {&RehearsedMemory::take, &RehearsedMemory::give_back}; }

  /// The bytes of the whole block that `buffer` holds, if `allocate` of an arena made it; else 0.
  static std::size_t bytes_of_activations(const Buffer& buffer) {
    const GiveBack* const made = std::get_deleter<GiveBack>(buffer);
    return made == nullptr || made->category != MemoryCategory::activations || made->block != buffer.get() ? 0 : made->size;
  }

  const MemoryUse& use() const { return state_->use; }
  void reset_peak();

 private:
  Buffer take(std::size_t size, MemoryCategory category);

  WEFT_COLD void* taken_from_system(std::size_t size);

  State* state_ = new State;  // the last of the arena and its buffers deletes it
};

template <class MemorySpace>
void Arena<MemorySpace>::reset_peak() {
  state_->use.peak = state_->use.current;
}

template <class MemorySpace>
Buffer Arena<MemorySpace>::take(std::size_t size, MemoryCategory category) {
  std::vector<void*>& blocks = state_->blocks(size);
  void* block = nullptr;
  if (blocks.empty()) {
    block = taken_from_system(size);
    state_->use.reserved += size;
  } else {
    block = blocks.back();
    blocks.pop_back();
  }
  state_->use.current += size;
  state_->use.by_category[std::size_t(category)] += size;
  if (state_->use.current > state_->use.peak) state_->use.peak = state_->use.current;
  return Buffer(std::shared_ptr<void>(block, GiveBack{state_, block, size, category}, CountAllocator<std::byte>(state_)));
}

template <class MemorySpace>
void* Arena<MemorySpace>::taken_from_system(std::size_t size) {
  using System = detail::System<MemorySpace>;
  if (void* block = state_->source.take(size)) return block;
  if (state_->use.reserved > state_->use.current) {
    System::before_give_back();
    state_->give_back();
    if (void* block = state_->source.take(size)) return block;
  }
  throw_error<MemoryError>({"out of memory: ", MemorySpace::name(), " memory has no room for ", size,
                            " more bytes; this rank uses ", state_->use.current, " there", System::room(),
                            ": a smaller model or micro-batch, recomputation, or more ranks to share it"});
}

}  // namespace detail

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class Arena<Kokkos::HostSpace>;
}  // namespace weft::detail
#endif
