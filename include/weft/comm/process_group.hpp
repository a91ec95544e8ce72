// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of a group of processes that is independent of the transport: its ranks, the records of its calls, and the errors
// that end a wait. comm/polled_group.hpp and comm/shared_memory/group.hpp are built on it.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/ledger.hpp>
#include <weft/comm/process.hpp>
#include <weft/comm/watch.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

class ProcessGroup : public Group, public Progress {
 public:
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  WEFT_INLINE ~ProcessGroup() override;

  int rank() const final { return rank_; }
  int size() const final { return int(members_.size()); }
  std::string_view axis() const final { return axis_; }
  std::string_view backend() const final { return backend_; }
  bool supports(Operation, DataType, MemoryKind memory) const final { return memory == MemoryKind::host; }
  Flight flight() final { return {&process_->recorder, flight_.get()}; }
  /// Also throws MismatchError if a message was sent and never received.
  WEFT_INLINE void end() final;

 protected:
  using Clock = std::chrono::steady_clock;

  /// An operation from start to end.
  struct Running {
    const Call* call = nullptr;
    std::uint64_t sequence = 0;  ///< its number among all operations of this group on this rank, for errors
    std::uint64_t number = 0;    ///< in the flight recorder
    std::uint64_t step = 0;      ///< in the ledger: among the collectives, or the messages of its kind
    std::unique_ptr<Watch::Wait> long_wait = nullptr;
    bool complete = false;
  };
  /// The times of a wait.
  struct WaitTimes {
    Clock::time_point start = Clock::now();
    Clock::time_point noticed = start;  ///< the last time at which every rank was known to live
  };

  /// `channel`: the group's number in the process's watch. `members`: the ranks of the world in the order of the group, this rank
  /// among them. `backend` is a literal.
  ProcessGroup(std::shared_ptr<Process> process, std::uint64_t channel, std::vector<int> members, std::string axis,
               std::string_view backend);

  /// Throws if this group can begin no more operations.
  virtual void expect_usable(const Running&) {}
  /// The ranks of the world whose calls an operation needs, for the watch; none: they are not known.
  virtual std::vector<int> awaited(const Running& running) const = 0;
  /// The ranks for which it waits, as errors name them: "rank 1, 2". Empty if they are not known.
  virtual std::string missing(const Running& running) const = 0;

  /// Records the begin of running.call and sets its numbers.
  void begin(Running& running);
  void complete(Running& running) {
    running.complete = true;
    process_->recorder.complete(running.number);
  }
  /// Throws if a wait cannot end well: a rank is lost, ranks wait in a circle or disagree, the deadline has passed, or the
  /// process was asked to stop.
  void check_wait(Running& running, WaitTimes& times);

  /// "rank 1 of dp".
  std::string rank_name(long rank) const;
  [[noreturn]] void throw_mismatch(const Running& running, const std::string& why) const;
  /// Throws MismatchError, which also becomes the error of long waits of the other ranks.
  [[noreturn]] void throw_disagreement(const Running& running, const std::string& why) const;
  [[noreturn]] void throw_aborted(const Running& running, const std::string& why) const;

  /// Gathers a few numbers of every rank, [size, mine]. Throws MismatchError if ranks split for different axes.
  std::vector<std::int64_t> gather_for_split(std::span<const std::int64_t> mine, std::string_view axis);

  const std::shared_ptr<Process> process_;
  const std::vector<int> members_;
  const std::shared_ptr<Ledger> ledger_;

 private:
  std::string axis_;
  std::string_view backend_;
  int rank_ = 0;
  std::shared_ptr<FlightRecorder::Line> flight_;
  std::uint64_t sequence_ = 0;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/process_group_impl.hpp>
#endif
