// SPDX-License-Identifier: Apache-2.0
#pragma once
// Freeing CUDA memory after the work that a rank's GPU shares with other ranks. cudaFree and cudaFreeHost wait for all work on
// the GPU. A communication kernel ends when the other ranks have started theirs, and those ranks may wait for an answer of this
// rank, which it cannot give inside cudaFree: a deadlock. So communication ends first, in a wait that answers other ranks and has
// a deadline. The work for which cudaFree then waits ends without other ranks.
//
//   gpu::free_memory(block);   // cudaFree

#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <weft/device/cuda/runtime.hpp>

namespace weft::gpu {

/// Work on the GPU of this thread's rank that cannot end without other ranks. Communicators register themselves.
class SharedWork {
 public:
  SharedWork() {
    std::lock_guard lock(all().mutex);
    all().works.emplace_back(std::this_thread::get_id(), this);
  }
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  /// Waits until the GPU has finished this work. Called by the thread that created the object. Throws CommunicationError if
  /// another rank fails or does not arrive before the deadline; the GPU holds none of the work in that case, either.
  virtual void finish() = 0;

  /// Calls finish on all objects of the calling thread.
  static void finish_all() {
    std::vector<SharedWork*> mine;
    {
      std::lock_guard lock(all().mutex);
      for (const auto& [thread, work] : all().works)
        if (thread == std::this_thread::get_id()) mine.push_back(work);
    }
    for (SharedWork* work : mine) work->finish();
  }

 protected:
  ~SharedWork() {
    std::lock_guard lock(all().mutex);
    std::erase_if(all().works, [this](const auto& entry) { return entry.second == this; });
  }

 private:
  struct All {
    std::mutex mutex;
    std::vector<std::pair<std::thread::id, SharedWork*>> works;
  };
  static All& all() {
    static All* const all = new All;  // never destroyed: memory may be freed after static objects are gone
    return *all;
  }
};

namespace detail {
/// Prints a failure; the next communication throws it again.
inline void finish_before_free() noexcept {
  try {
    SharedWork::finish_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}
}  // namespace detail

/// cudaFree. Null is allowed.
inline void free_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  detail::finish_before_free();
  cuda_report(cudaFree(memory), "cudaFree");
}

/// cudaFreeHost. Null is allowed.
inline void free_pinned_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  detail::finish_before_free();
  cuda_report(cudaFreeHost(memory), "cudaFreeHost");
}

}  // namespace weft::gpu
