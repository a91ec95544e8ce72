// SPDX-License-Identifier: Apache-2.0
#pragma once
// A check for memory before oneDNN creates objects. oneDNN does not check allocations for a kernel's code (2.6 and 3.x write to a
// null pointer). With this check, exhausted memory throws MemoryError instead.
//
//   const OneDnnRoom room;                                     // locks: one thread of the process at a time
//   room.require(scratch_bytes);                               // further memory, once its size is known
//   dnnl_primitive_create(&primitive, description);

#include <sys/mman.h>

#include <cstddef>
#include <mutex>

#include <weft/core/error.hpp>

namespace weft::kernels::detail {

class OneDnnRoom {
 public:
  /// The first product of a process took 6 MB of address space, a primitive at most 2 MB (oneDNN 2.6, AVX-512). The rest is a
  /// reserve for concurrent allocations of other threads.
  static constexpr std::size_t bytes_of_kernels = std::size_t(24) << 20;

  /// Throws MemoryError if there is no memory for kernels.
  OneDnnRoom() : lock_(mutex_) { require(0); }

  /// Throws MemoryError if there is no memory for kernels and `more` bytes. Frees the memory again, for oneDNN to allocate.
  WEFT_COLD void require(std::size_t more) const {
    const std::size_t bytes = bytes_of_kernels + more;
    void* const room =
        bytes < more ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
      throw_error<MemoryError>(
          {"out of memory: the host has no room for ", bytes,
           " more bytes, which oneDNN needs for kernels: fewer ranks or threads on this machine, a smaller model or "
           "micro-batch, or a higher limit (ulimit -v)"});
    ::munmap(room, bytes);
  }

 private:
  static inline std::mutex mutex_;
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace weft::kernels::detail
