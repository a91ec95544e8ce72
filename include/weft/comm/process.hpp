// SPDX-License-Identifier: Apache-2.0
#pragma once
// What all groups of a rank that is a process share. Progress is cooperative: whatever the rank waits for, everything that it has
// under way advances.

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/comm/flight_recorder.hpp>

namespace weft::comm {

/// A group of a process with operations that may be under way.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Does what can be done now for every operation under way.
  virtual void progress() = 0;
};

struct Process {
  Process() = default;
  Process(int of_world, std::chrono::duration<double> wait_at_most, bool check) : rank(of_world), deadline(wait_at_most), fingerprints(check) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  int rank = 0;  ///< in the world
  std::chrono::duration<double> deadline{1800};
  bool fingerprints = false;  ///< before a collective begins, every rank looks at what all the others called
  FlightRecorder recorder;
  std::vector<Progress*> groups;
  std::size_t under_way = 0;  ///< operations, of all groups
  std::size_t polled = 0;     ///< those of them that advance only when this process looks, and wake nobody

  void progress() {
    for (std::size_t k = 0; k < groups.size(); ++k) groups[k]->progress();
  }
  /// The lowest rank of the world that is known to have failed, or -1; and what is known about it.
  virtual int lost() { return -1; }
  virtual std::string fate(int) const { return {}; }
};

}  // namespace weft::comm
