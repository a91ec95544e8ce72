// SPDX-License-Identifier: Apache-2.0
#pragma once
// A ring buffer of a rank's last operations that other threads may read at any time. Messages of errors show the last few, so
// that one sees the position of every rank; a file of each rank (comm/flight_file.hpp) holds all of them, with times. Its memory
// is fixed, and a call writes one cache line.
//
//   const std::shared_ptr<FlightRecorder::Line> line = recorder.open("tp", members, number_of_the_communicator);
//   const auto number = recorder.begin(*line, sequence, call);
//   recorder.complete(number);

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/flight_clock.hpp>
#include <weft/comm/operation.hpp>
#include <weft/comm/rank_times.hpp>

namespace weft::comm {

/// Written by one rank, read by all.
class FlightRecorder {
 public:
  static constexpr std::size_t capacity = 1024, shown = 8;  ///< calls kept, and calls in a message

  /// A communicator of the rank.
  struct Line {
    std::string axis;
    std::vector<int> ranks;                               ///< of the world, in the order of the communicator
    std::uint64_t number = 0;                             ///< the communicator's, the same on all of its ranks
    std::uint64_t index = 0;                              ///< among all that the recorder has opened
    std::uint64_t newest = 0;                             ///< one more than the number of its newest call
    mutable std::uint64_t collectives = 0, messages = 0;  ///< begun: written by the recorder, atomically
    RankTimes::Axis* times = nullptr;                     ///< of its axis, for the rank's own thread
  };

  /// A call that was begun.
  struct Record {
    std::uint64_t number = 0;    ///< among the rank's calls
    std::uint64_t line = 0;      ///< the index of its communicator
    std::uint64_t sequence = 0;  ///< among its communicator's calls, as messages of errors have it
    std::uint64_t step = 0;      ///< among its communicator's collectives, or its messages: from 1
    std::uint64_t signature = 0, count = 0;
    int peer = -1;                     ///< of a message: its rank in the world
    std::uint64_t begin = 0, end = 0;  ///< in ticks, or 1 without times; end is 0 as long as the call is open
  };

  /// With times if WEFT_FLIGHT_DIR is set: two readings of a clock cost some 30 ns a call.
  FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  /// Says whose recorder this is, so that `write_flights` finds it. Called once, before the first call.
  void belongs_to(int rank, int world, std::string_view backend);

  /// A new communicator of the rank. It is forgotten once the caller has given it back and its last call has left the ring.
  std::shared_ptr<Line> open(std::string_view axis, std::span<const int> ranks, std::uint64_t number);

  /// Records the begin of an operation and returns its number, which `complete` takes. Thread: the rank's own.
  std::uint64_t begin(Line& line, std::uint64_t sequence, const Call& call);

  void complete(std::uint64_t number);

  /// The number of operations begun so far, on all communicators.
  std::uint64_t begun() const { return next_.load(std::memory_order_acquire); }

  /// The function of the program in which the rank is (comm/in_function.hpp).
  ProgramFunction function() const { return function_.load(std::memory_order_relaxed); }
  void in(ProgramFunction function) { function_.store(function, std::memory_order_relaxed); }
  /// Thread: the rank's own.
  RankTimes& times() { return times_; }
  const RankTimes& times() const { return times_; }

  /// The newest `most` operations, newest first: "all_reduce(sum) of 16 float32 on tp #3 (not complete), ...".
  std::string text(std::size_t most = shown) const;

  int rank() const { return rank_; }
  int world() const { return world_; }
  const std::string& backend() const { return backend_; }
  const FlightClock& clock() const { return clock_; }
  bool timed() const { return timed_; }
  bool written() const { return written_; }  ///< by the rank itself, because of an error; guarded by the list of recorders
  void written(bool by_itself) { written_ = written_ || by_itself; }

  /// The calls that are still there, oldest first, without those that are being replaced; and the communicators, by index.
  std::vector<Record> records(std::size_t most = capacity) const;
  std::vector<Line> lines() const;

 private:
  // Every store is a release and every load an acquire, which cost nothing on x86: a reader that finds the same tag before and
  // after has read one call (H.-J. Boehm: Can seqlocks get along with programming language memory models?, MSPC 2012).
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> tag{0};  // the call's number + 1; 0: being replaced, or none yet
    std::atomic<std::uint64_t> place{0}, step{0}, signature{0}, count{0}, peer{0}, begin{0}, end{0};
  };
  static_assert(sizeof(Entry) == 64);
  static constexpr int peer_bits = 24;  // of an entry's `peer`; the others are its line's index

  std::uint64_t now() const { return timed_ ? FlightClock::ticks() | 1 : 1; }
  bool read(std::uint64_t number, Record& record) const;
  /// Forgets the communicators that are closed and of which no call is kept.
  void forget_closed();

  std::array<Entry, capacity> entries_;
  std::atomic<std::uint64_t> next_{0};
  FlightClock clock_;
  RankTimes times_;
  const bool timed_;
  mutable std::mutex mutex_;                  // over lines_; a call does not take it
  std::vector<std::shared_ptr<Line>> lines_;  // by index
  std::uint64_t opened_ = 0;
  std::size_t crowded_ = 64;  // with so many lines it looks for closed ones
  std::atomic<ProgramFunction> function_{ProgramFunction::none};
  int rank_ = -1, world_ = 0;
  std::string backend_;
  bool written_ = false;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/flight_recorder_impl.hpp>
#endif
