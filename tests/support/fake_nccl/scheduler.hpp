// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams, and when they do what they were given: a thread each, which may start a task at once, after a random while, or only
// when something waits for it. CUDA promises no more than the order within a stream.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "support/fake_nccl/clocks.hpp"

namespace fake_nccl {

/// Bytes that a task reads or writes.
struct Range {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};

struct Task {
  std::string name;
  std::function<void()> run;
  std::vector<Range> reads, writes;
};

class Stream {
 public:
  explicit Stream(int device);

  /// Given by `host`, that is after everything that it has waited for.
  void add(Task task, const Host& host);
  /// Orders what comes next after `other`.
  void come_after(const Clock& other);
  Clock clock() const;
  std::uint64_t given() const;
  /// Waits until everything given so far is done, at most for `seconds` (negative: for ever); false if it is not.
  bool drain(double seconds = -1);
  /// What is to be done is wanted now.
  void demand();
  /// Ends once its work is done; a stream may be destroyed before.
  void close();
  /// The task that it is at.
  std::string at() const;

  const int number, device;

 private:
  friend std::shared_ptr<Stream> make_stream(int device);
  void work();
  void pause(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::string at_;
  std::uint64_t given_ = 0, done_ = 0, demanded_ = 0;
  bool closed_ = false;
  Clock clock_;  // under the lock of all clocks
  std::mt19937 random_;
};

std::shared_ptr<Stream> make_stream(int device);

/// What cudaFree, cudaFreeHost and ncclCommAbort do: they return when everything that the GPU was given is done. If that lasts
/// longer than Machine::patience, a report names the call and what it waits for. Returns what is done then.
std::vector<Clock> wait_for_device(int device, const char* call);

/// A while of random length before something that another thread does; none if the schedule is eager.
void random_delay(unsigned salt);

/// Guards all clocks and all that is known about accesses.
std::mutex& clocks_mutex();

}  // namespace fake_nccl
