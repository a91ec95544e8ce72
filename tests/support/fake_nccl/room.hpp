// SPDX-License-Identifier: Apache-2.0
#pragma once
// The number of NCCL kernels that fit on each GPU, Machine::kernels. A kernel occupies multiprocessors until it ends, so a later
// one may have to wait. If ranks start more kernels than fit, in different orders, none of them ends.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace fake_nccl {

/// While it exists, a kernel is on the GPU. The constructor waits, in order of arrival, until the kernel fits or `aborted` is
/// set.
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
    std::map<int, std::deque<const Occupied*>> kernels;  // by GPU: running kernels, then waiting ones
  };
  static Room& room();

  int device_;
};

}  // namespace fake_nccl
