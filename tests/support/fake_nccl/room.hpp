// SPDX-License-Identifier: Apache-2.0
#pragma once
// The room of each GPU for NCCL's kernels, Machine::kernels: a kernel occupies multiprocessors until it ends, so that one which
// starts later may have to wait. If ranks start kernels in different orders, and more than there is room for, none of them ends.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace fake_nccl {

/// While it lives, a kernel is on the GPU. The constructor waits for room, first come, first served, or until `aborted`.
class Occupied {
 public:
  Occupied(int device, const std::atomic<bool>& aborted);
  ~Occupied();
  Occupied(const Occupied&) = delete;

  /// To be called after a communicator was aborted.
  static void notice_aborts();

 private:
  struct Room {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, std::deque<const Occupied*>> kernels;  // by GPU: those that run, then those that wait for room
  };
  static Room& room();

  int device_;
};

}  // namespace fake_nccl
