// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vector clocks: the order between the work of streams, events and host threads. CUDA orders work only by streams, by events and
// by waits of the host. All three are known when the host makes its calls, so a race is found even if the accesses do not overlap
// in time.

#include <algorithm>
#include <cstdint>
#include <map>

namespace fake_nccl {

class Clock {
 public:
  void merge(const Clock& other) {
    for (const auto& [stream, number] : other.seen_) advance(stream, number);
  }
  void advance(int stream, std::uint64_t number) {
    std::uint64_t& seen = seen_[stream];
    seen = std::max(seen, number);
  }
  /// True if the stream's task `number` comes before.
  bool includes(int stream, std::uint64_t number) const {
    const auto seen = seen_.find(stream);
    return seen != seen_.end() && seen->second >= number;
  }

 private:
  std::map<int, std::uint64_t> seen_;  // by stream: the last task
};

/// A host thread that submits work: the work comes after everything for which the thread has waited.
struct Host {
  int number = 0;
  Clock clock;
};
Host& this_host_thread();

/// This thread has seen the end of everything in `clock`. Host threads synchronise by means that the double cannot see, so the
/// wait also orders work that other threads submit, but not their own accesses.
void host_has_waited_for(const Clock& clock);

}  // namespace fake_nccl
