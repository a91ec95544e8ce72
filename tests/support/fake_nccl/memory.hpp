// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of the double, with the rules for the host: host threads must not access device memory (it has no access rights; streams
// see the same bytes at another address), new and freed blocks hold garbage, and unordered accesses are a race.

#include <cstddef>
#include <string>

#include "support/fake_nccl/clocks.hpp"
#include "support/fake_nccl/scheduler.hpp"

namespace fake_nccl {

enum class Where { device, pinned };

/// Null if the memory of the GPU is full (Machine::memory).
void* take_block(std::size_t bytes, Where where, int device);
/// False if there is no such block.
bool free_block(void* pointer, Where where);
/// The GPU of a block; -1 if there is no such block.
int device_of_block(const void* pointer);
std::size_t bytes_left(int device);

bool on_device(const void* pointer, std::size_t bytes);
bool is_pinned(const void* pointer);
/// The address at which streams access the bytes; unchanged for host memory.
void* seen_by_streams(const void* pointer);

/// A read or a write by the task `number` of a stream, submitted by a host thread.
struct Access {
  std::string name;
  Range range;
  bool writes = false;
  int stream = 0;
  std::uint64_t number = 0;
  int host = 0;
};
/// Reports a race with an earlier access that is not in `clock`, the use of a freed block, and the use of bytes that an aborted
/// operation has left. The caller holds the lock of all clocks, as for `settle`.
void access(const Access& access, const Clock& clock);
/// A host thread has waited for it: this orders the next work of other threads, or of all threads.
enum class Settled { for_others, for_all };
void settle(const Clock& clock, Settled settled);
/// An aborted operation has left the bytes undefined, until they are written again.
void leave_undefined(const Range& range, const std::string& name);
/// True if work submitted to the stream of that clock comes after the last writes of these bytes.
bool after_writes(const Clock& clock, const void* pointer);

}  // namespace fake_nccl
