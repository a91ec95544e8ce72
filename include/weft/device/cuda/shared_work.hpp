// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory goes back to the CUDA runtime after the work that a rank's GPU shares with other ranks. cudaFree and cudaFreeHost wait
// for everything that the GPU was given. A communication's kernel ends when the other ranks have started theirs, and they may
// wait for this rank to answer, which it cannot do inside of cudaFree: a deadlock. So communication ends first, in a wait that
// answers other ranks and has a deadline, and what cudaFree then waits for ends by itself.
//
//   gpu::free_memory(block);   // cudaFree

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <weft/device/cuda/runtime.hpp>

namespace weft::gpu {

/// Work on the GPU of the rank that is this thread, which ends only with other ranks' help: a communicator registers itself.
class SharedWork {
 public:
  SharedWork() {
    std::lock_guard lock(all().mutex);
    all().works.emplace_back(std::this_thread::get_id(), this);
  }
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  /// Waits until the GPU has ended what it was given of it. Called by the thread that made it. Throws CommunicationError if
  /// another rank fails or does not come before the deadline; the GPU holds nothing of it then, either.
  virtual void finish() = 0;

  /// finish of all that the calling thread has made.
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
    static All* const all = new All;  // memory may be freed after static objects are gone
    return *all;
  }
};

namespace detail {
/// A failure is printed here; the next communication throws it again.
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
