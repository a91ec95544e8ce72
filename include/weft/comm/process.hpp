// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all groups of a rank share if the rank is a process. Progress is cooperative: whatever the rank waits for, all
// its operations advance.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/watch.hpp>

namespace weft::comm {

/// A group of a process, with operations that may be in progress.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Advances every started operation as far as possible without waiting.
  virtual void progress() = 0;
};

struct Process {
  Process() = default;
  Process(int of_world, std::chrono::duration<double> wait_at_most, bool check)
      : rank(of_world), deadline(wait_at_most), fingerprints(check) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  int rank = 0;  ///< in the world
  std::chrono::duration<double> deadline{1800};
  bool fingerprints = false;  ///< before each collective, every rank compares the calls of all others
  FlightRecorder recorder;
  std::unique_ptr<Watch> watch;  ///< over long waits; null: a circle of waits ends at the deadline
  std::vector<Progress*> groups;
  std::size_t under_way = 0;  ///< operations in progress, of all groups
  std::size_t polled = 0;     ///< those that advance only if this process polls, and wake no rank

  void progress() {
    for (std::size_t k = 0; k < groups.size(); ++k) groups[k]->progress();
  }
  /// The lowest rank of the world that is known to have failed, or -1; `fate` describes its end.
  virtual int lost() { return -1; }
  /// Whether a connection has delivered bytes that are no valid frame, to this rank or to rank 0's store. The next call of a
  /// group throws, also if that connection is idle.
  virtual bool disturbed() const { return false; }
  virtual std::string fate(int) const { return {}; }
};

}  // namespace weft::comm
