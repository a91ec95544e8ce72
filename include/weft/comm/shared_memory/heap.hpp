// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process's tensors in memory that the other processes of its machine map: a collective then finds a peer's numbers where they
// lie. The heap is one sparse file without a name, mapped once at its full size. Pages are allocated when blocks are taken, so
// that a lack of memory shows there, and large blocks return theirs. It is used where address space is not limited; a block that
// does not fit comes from the system, and collectives over it copy through slots.

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include <weft/comm/shared_memory/memory.hpp>
#include <weft/comm/shared_memory/peer_heaps.hpp>
#include <weft/device/block_source.hpp>

namespace weft::comm::shared_memory {

class Heap {
 public:
  /// The heap of this process, made at the first call; null if the system has none. It lives until the process ends.
  static Heap* mine();
  /// Its blocks for an arena, and the system's where it has no room.
  static const weft::detail::BlockSource blocks;

  explicit Heap(Memory memory) : memory_(std::move(memory)) { free_.emplace(heap_head, memory_.address().bytes - heap_head); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Address& address() const { return memory_.address(); }
  std::byte* data() const { return memory_.data(); }
  /// A block of at least `bytes`, aligned to 64; null if the heap or the machine has no room.
  void* take(std::size_t bytes);
  /// Takes a block back; false if it is not one of this heap. A forked child's calls change nothing: it shares the parent's
  /// blocks.
  bool give_back(void* block);

  /// Another rank may write into this heap at any time: it was at work there when this process gave up, and has not ended.
  void expose() { exposed_.store(true, std::memory_order_relaxed); }
  bool exposed() const { return exposed_.load(std::memory_order_relaxed); }

 private:
  static void* take_block(std::size_t bytes);
  static void give_back_block(void* block);
  bool commit(std::size_t end);

  Memory memory_;
  const pid_t owner_ = ::getpid();
  std::atomic<bool> exposed_{false};
  std::mutex mutex_;                                 // a program's threads may free tensors
  std::map<std::size_t, std::size_t> free_, taken_;  // lengths by offset
  std::size_t committed_ = 0;                        // pages below it were allocated, and those of freed blocks returned
};

inline const weft::detail::BlockSource Heap::blocks{&Heap::take_block, &Heap::give_back_block};

}  // namespace weft::comm::shared_memory

#ifndef WEFT_COMPILED
#include <weft/comm/shared_memory/heap_impl.hpp>
#endif
