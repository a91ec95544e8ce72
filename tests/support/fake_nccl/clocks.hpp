// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vector clocks: which work a stream, an event or a thread of the host comes after. CUDA orders work by streams, by events and by
// waits of the host, and by nothing else; all three are known when the host makes its calls, so that a race is found whether or
// not the accesses meet in time.

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

/// A thread of the host, as the giver of work: what it gives comes after everything that it has waited for.
struct Host {
  int number = 0;
  Clock clock;
};
Host& this_host_thread();

/// This thread has seen the end of everything in `clock`. Threads of the host order each other by means that the double does not
/// see, so what one has waited for counts as ordered for work that others give, but not for its own.
void host_has_waited_for(const Clock& clock);

}  // namespace fake_nccl
