// SPDX-License-Identifier: Apache-2.0
#pragma once
// The deadline of MPI's start and end. MPI_Init and MPI_Finalize wait for all ranks and take no deadline, so a rank that never
// calls one of them would hang the job. A thread of each process counts the time instead, and ends the process with one
// line; the launcher then ends the others.
//
//   const mpi::CallLimit limit("MPI_Init", 120);
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
class CallLimit {
 public:
  CallLimit(const char* call, double seconds) : call_(call) {
    try {
      thread_ = std::thread([this, seconds] { wait(seconds); });
    } catch (const std::system_error&) {}  // the process may start no thread: then there is no limit
  }
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;
  ~CallLimit() {
    {
      const std::lock_guard lock(mutex_);
      returned_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void wait(double seconds) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return returned_; })) return;
    std::fprintf(stderr,
                 "weft: %s waited longer than the %g s of WEFT_RENDEZVOUS_S for the other ranks: a process of this job stands "
                 "still or did not start\n",
                 call_, seconds);
    std::fflush(stderr);
    std::_Exit(1);
  }

  const char* const call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::thread thread_;
};

}  // namespace weft::comm::mpi
