// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "support/fake_nccl/fake.hpp"
#include "support/fake_nccl/reports.hpp"

namespace fake_nccl {
namespace {

constexpr int garbage = 0xcb;

struct Undefined {
  Range range;
  std::string name;
};
struct Allocation {
  std::size_t bytes = 0;
  Where where = Where::device;
  int device = 0;
  bool freed = false;
  char* seen = nullptr;          // the same bytes, for streams
  std::vector<Access> accesses;  // that later ones may meet
  std::vector<Undefined> undefined;
};
struct Memory {
  std::mutex mutex;
  std::map<const char*, Allocation> blocks;
  std::map<int, std::size_t> used;  // by GPU
  Clock settled_for_others, settled_for_all;
};
Memory& memory() {
  static auto* const memory = new Memory;  // threads of streams outlive static objects
  return *memory;
}

const char* begin_of(const Range& range) { return static_cast<const char*>(range.begin); }
const char* end_of(const Range& range) { return begin_of(range) + range.bytes; }
bool meet(const Range& a, const Range& b) { return begin_of(a) < end_of(b) && begin_of(b) < end_of(a); }
bool covers(const Range& a, const Range& b) { return begin_of(a) <= begin_of(b) && end_of(a) >= end_of(b); }

std::size_t in_pages(std::size_t bytes) {
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

/// The block that begins at or before the address and extends beyond it, or null. The caller holds the mutex.
std::pair<const char* const, Allocation>* block_of(const void* pointer) {
  auto& blocks = memory().blocks;
  auto after = blocks.upper_bound(static_cast<const char*>(pointer));
  if (after == blocks.begin()) return nullptr;
  --after;
  return static_cast<const char*>(pointer) < after->first + std::max<std::size_t>(after->second.bytes, 1) ? &*after : nullptr;
}

/// Two views of the same memory; the first has no access rights.
void map_twice(std::size_t bytes, void*& address, char*& seen) {
  const int file = memfd_create("device memory", 0);
  if (file < 0 || ftruncate(file, off_t(bytes)) != 0) std::abort();
  address = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const second = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED || second == MAP_FAILED) std::abort();
  close(file);
  seen = static_cast<char*>(second);
}

}  // namespace

void* take_block(std::size_t bytes, Where where, int device) {
  auto& known = memory();
  std::lock_guard lock(known.mutex);
  Allocation block;
  block.bytes = bytes, block.where = where, block.device = device;
  void* address = nullptr;
  if (where == Where::device) {
    if (known.used[device] + bytes > machine().memory) return nullptr;
    map_twice(in_pages(bytes), address, block.seen);
    known.used[device] += bytes;
  } else {
    address = std::malloc(std::max<std::size_t>(bytes, 1));
    block.seen = static_cast<char*>(address);
  }
  std::memset(block.seen, garbage, bytes);
  known.blocks[static_cast<const char*>(address)] = std::move(block);
  return address;
}

bool free_block(void* pointer, Where where) {
  auto& known = memory();
  std::lock_guard lock(known.mutex);
  const auto found = known.blocks.find(static_cast<const char*>(pointer));
  if (found == known.blocks.end() || found->second.where != where || found->second.freed) return false;
  Allocation& block = found->second;
  if (where == Where::pinned) {
    std::free(pointer);
    known.blocks.erase(found);
    return true;
  }
  // The address is never reused, so that a later use is detected.
  known.used[block.device] -= block.bytes;
  block.freed = true;
  block.accesses.clear();
  std::memset(block.seen, garbage, block.bytes);
  return true;
}

int device_of_block(const void* pointer) {
  std::lock_guard lock(memory().mutex);
  const auto* block = block_of(pointer);
  return block == nullptr || block->second.freed ? -1 : block->second.device;
}

std::size_t bytes_left(int device) {
  std::lock_guard lock(memory().mutex);
  return machine().memory - memory().used[device];
}

bool on_device(const void* pointer, std::size_t bytes) {
  if (bytes == 0) return true;
  std::lock_guard lock(memory().mutex);
  const auto* block = block_of(pointer);
  return block != nullptr && block->second.where == Where::device && !block->second.freed &&
         static_cast<const char*>(pointer) + bytes <= block->first + block->second.bytes;
}

bool is_pinned(const void* pointer) {
  std::lock_guard lock(memory().mutex);
  const auto* block = block_of(pointer);
  return block != nullptr && block->second.where == Where::pinned;
}

void* seen_by_streams(const void* pointer) {
  std::lock_guard lock(memory().mutex);
  const auto* block = block_of(pointer);
  if (block == nullptr) return const_cast<void*>(pointer);
  return block->second.seen + (static_cast<const char*>(pointer) - block->first);
}

void settle(const Clock& clock, Settled settled) {
  std::lock_guard lock(memory().mutex);
  (settled == Settled::for_all ? memory().settled_for_all : memory().settled_for_others).merge(clock);
}

void access(const Access& now, const Clock& clock) {
  if (now.range.bytes == 0) return;
  std::lock_guard lock(memory().mutex);
  auto* const found = block_of(now.range.begin);
  if (found == nullptr) return;  // ordinary memory of the host
  Allocation& block = found->second;
  const auto says = [](const Access& a) {
    return a.name + (a.writes ? " writes " : " reads ") + std::to_string(a.range.bytes) + " bytes";
  };
  if (block.freed) return report(says(now) + " of memory that was freed");
  for (const Undefined& left : block.undefined)
    if (!now.writes && meet(left.range, now.range))
      report(says(now) + " that " + left.name + " left undefined when it was aborted");
  if (now.writes) std::erase_if(block.undefined, [&](const Undefined& left) { return covers(now.range, left.range); });
  std::erase_if(block.accesses, [&](const Access& before) {
    const auto in = [&](const Clock& of) { return of.includes(before.stream, before.number); };
    const bool ordered =
        in(clock) || in(memory().settled_for_all) || (before.host != now.host && in(memory().settled_for_others));
    const bool conflict = (before.writes || now.writes) && meet(before.range, now.range);
    if (conflict && !ordered)
      report("race: " + says(now) + ", and nothing orders it after an earlier task of another stream: " + says(before));
    // Any work after this access also comes after that one.
    return ordered && (now.writes || !before.writes) && covers(now.range, before.range);
  });
  block.accesses.push_back(now);
}

void leave_undefined(const Range& range, const std::string& name) {
  std::lock_guard lock(memory().mutex);
  if (auto* const found = block_of(range.begin); found != nullptr && range.bytes != 0)
    found->second.undefined.push_back({range, name});
}

bool after_writes(const Clock& clock, const void* pointer) {
  std::lock_guard lock(memory().mutex);
  const auto* const found = block_of(pointer);
  if (found == nullptr) return true;
  const auto& accesses = found->second.accesses;
  return std::all_of(accesses.begin(), accesses.end(), [&](const Access& before) {
    return !before.writes || !meet(before.range, {pointer, 1}) || clock.includes(before.stream, before.number);
  });
}

}  // namespace fake_nccl
