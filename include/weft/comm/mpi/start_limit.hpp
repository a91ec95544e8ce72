// SPDX-License-Identifier: Apache-2.0
#pragma once
// The deadline of MPI's start. MPI_Init waits for all ranks and takes no deadline, so a rank that stands still before it would
// hang the job. A thread of each process counts the time instead, and ends the process with one line; the launcher then ends the
// others.
//
//   const mpi::StartLimit limit(120);
//   MPI_Init_thread(...);

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include <weft/core/standard.hpp>

namespace weft::comm::mpi {

/// Ends the process with exit code 1 unless this object has ended after so many seconds. Calls nothing of MPI.
class StartLimit {
 public:
  explicit StartLimit(double seconds) {
    try {
      thread_ = std::thread([this, seconds] { wait(seconds); });
    } catch (const std::system_error&) {}  // the process may start no thread: then there is no limit
  }
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
  ~StartLimit() {
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void wait(double seconds) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return started_; })) return;
    std::fprintf(stderr,
                 "weft: MPI_Init waited longer than the %g s of WEFT_RENDEZVOUS_S for the other ranks: a process of this job "
                 "stands still or did not start\n",
                 seconds);
    std::fflush(stderr);
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace weft::comm::mpi
