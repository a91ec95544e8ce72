// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/heap.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <sys/resource.h>

#include <algorithm>
#include <iterator>

#include <weft/comm/shared_memory/heap.hpp>
#include <weft/comm/shared_memory/slots.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/arena.hpp>

namespace weft::comm::shared_memory {

WEFT_INLINE Heap* Heap::mine() {
  static Heap* const heap = []() -> Heap* {
    // Every process maps the heaps of all others, and half of the address space has room for them.
    const std::size_t physical = std::size_t(::sysconf(_SC_PHYS_PAGES)) * std::size_t(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = std::min(physical, (std::size_t(1) << 46) / std::size_t(most_ranks)) / 4096 * 4096;
    for (const auto limited : {RLIMIT_AS, RLIMIT_FSIZE}) {
      rlimit limit{};
      if (::getrlimit(limited, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return nullptr;
    }
    Memory memory = Memory::create(bytes, Memory::Pages::later);
    if (!memory || !memory.allocate(0, heap_head)) return nullptr;
    ::madvise(memory.data(), bytes, MADV_DONTDUMP);  // a dump would allocate all of it
    ::madvise(memory.data(), bytes, MADV_HUGEPAGE);  // where the system gives shared memory any
    return new Heap(std::move(memory));
  }();
  return heap;
}

WEFT_INLINE bool Heap::commit(std::size_t end) {
  constexpr std::size_t step = std::size_t(2) << 20;
  if (end <= committed_) return true;
  const std::size_t next = std::min((end + step - 1) / step * step, address().bytes);
  if (!memory_.allocate(committed_, next - committed_)) return false;
  committed_ = next;
  return true;
}

WEFT_INLINE void* Heap::take(std::size_t bytes) {
  // Long blocks begin on pages, so that freeing them returns whole pages.
  if (::getpid() != owner_) return nullptr;
  const std::size_t length = std::max<std::size_t>(64, (bytes + 63) / 64 * 64), alignment = length >= 65536 ? 4096 : 64;
  const std::lock_guard lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, room] = *range;
    const std::size_t begin = (offset + alignment - 1) / alignment * alignment, end = begin + length;
    if (end > offset + room) continue;
    const bool reused = begin < committed_ && length >= 4096;  // its pages may have been returned
    if (!commit(end) || (reused && !memory_.allocate(begin, length))) return nullptr;
    free_.erase(range);
    if (begin > offset) free_.emplace(offset, begin - offset);
    if (end < offset + room) free_.emplace(end, offset + room - end);
    taken_.emplace(begin, length);
    return data() + begin;
  }
  return nullptr;
}

WEFT_INLINE bool Heap::give_back(void* block) {
  const auto at = reinterpret_cast<std::uintptr_t>(block), heap = reinterpret_cast<std::uintptr_t>(data());
  if (at < heap || at - heap >= address().bytes) return false;
  if (::getpid() != owner_) return true;
  const std::size_t place = at - heap;
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(place);
  if (taken == taken_.end()) return false;
  std::size_t begin = place, end = begin + taken->second;
  taken_.erase(taken);
  memory_.forget(begin, end - begin);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(begin, end - begin);
  return true;
}

WEFT_INLINE void* Heap::take_block(std::size_t bytes) {
  Heap* const heap = Heap::mine();
  void* const block = heap == nullptr ? nullptr : heap->take(bytes);
  return block != nullptr ? block : weft::detail::System<Kokkos::HostSpace>::take(bytes);
}

WEFT_INLINE void Heap::give_back_block(void* block) {
  Heap* const heap = Heap::mine();
  if (heap == nullptr || !heap->give_back(block)) weft::detail::System<Kokkos::HostSpace>::give_back(block);
}

}  // namespace weft::comm::shared_memory
