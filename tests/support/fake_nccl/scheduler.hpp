// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams, and the times at which they execute their work: one thread per stream, which may start a task at once, after a random
// delay, or only when something waits for it. CUDA only guarantees the order within a stream.

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

  /// Submitted by `host`, that is after everything for which it has waited.
  void add(Task task, const Host& host);
  /// Orders later work after `other`.
  void come_after(const Clock& other);
  Clock clock() const;
  std::uint64_t given() const;
  /// Waits until all submitted work is done, at most `seconds` (negative: for ever); returns false on a timeout.
  bool drain(double seconds = -1);
  /// Requests the execution of all submitted work.
  void demand();
  /// Ends once its work is done; the stream may be destroyed before.
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

/// The wait of cudaFree, cudaFreeHost and ncclCommAbort: they return when all submitted work of the GPU is done. If that takes
/// longer than Machine::patience, a report names the call and the work for which it waits. Returns the clocks of the finished
/// work.
std::vector<Clock> wait_for_device(int device, const char* call);

/// A random delay before an action of another thread; none if the schedule is eager.
void random_delay(unsigned salt);

/// Protects all clocks and all recorded accesses.
std::mutex& clocks_mutex();

}  // namespace fake_nccl
