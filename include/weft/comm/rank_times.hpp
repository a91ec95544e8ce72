// SPDX-License-Identifier: Apache-2.0
#pragma once
// The times of one rank: how long its last training step computed, and how long it was inside of messages, by axis. A rank keeps
// them beside its flight recorder, which all its communicators share; a call costs two readings of the clock below.
//
//   for (const RankTimes::Axis& axis : times.axes()) axis.name, times.seconds(axis.ticks), axis.bytes
//
// The clock is the processor's counter if the rank has cores of its own, so that whatever stops the rank counts. If ranks share
// cores it is the processor time of the rank's thread: the time in which another rank has the core is not the rank's own.

#include <time.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/flight_clock.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

class RankTimes {
 public:
  /// The messages on the communicators of one axis since the rank began.
  struct Sums {
    std::uint64_t ticks = 0;  ///< inside of blocking calls, of starts and of waits
    std::uint64_t calls = 0;
    double bytes = 0;  ///< as in RehearsedWork::Messages
  };
  struct Axis : Sums {
    std::string name;
    Sums at_step;  ///< those when the last training step began
  };

  /// The sums of that axis; the reference stays valid.
  WEFT_COLD Axis& axis(std::string_view name) {
    for (Axis& one : axes_)
      if (one.name == name) return one;
    axes_.emplace_back().name = name;
    return axes_.back();
  }
  const std::deque<Axis>& axes() const { return axes_; }

  /// Called before the first step. `share`: the ranks of this machine have more threads than it has cores.
  void cores(bool share) { processor_time_ = share; }

  std::uint64_t now() const { return processor_time_ ? processor_ns() : FlightClock::ticks(); }
  /// Seconds of ticks of now().
  double seconds(std::uint64_t ticks) const {
    if (processor_time_) return 1e-9 * double(ticks);
    const FlightClock::Scale scale = clock_.now();
    return 1e-9 * double(scale.steady_ns(clock_.first().ticks + ticks) - scale.steady_ns(clock_.first().ticks));
  }

  // A training step, and the waits of the thread. Neither is counted inside of another one.

  void begin_step() {
    step_begin_ = now();
    waited_before_ = waited_;
    for (Axis& axis : axes_) axis.at_step = {axis.ticks, axis.calls, axis.bytes};
  }
  void end_step() { computed_ = untaken_ = now() - step_begin_ - (waited_ - waited_before_); }
  void waited(Axis& axis, std::uint64_t ticks) {
    axis.ticks += ticks;
    waited_ += ticks;
  }
  /// Ticks that the last training step computed: all its time outside of messages. 0 before the first one.
  std::uint64_t computed() const { return computed_; }
  /// The same once for each training step, then 0.
  std::uint64_t take_computed() { return std::exchange(untaken_, 0); }

  bool waiting = false;        ///< inside of a Waiting
  std::uint64_t observed = 0;  ///< calls of which a tool was told (runtime/step_trace.hpp)

 private:
  static std::uint64_t processor_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::uint64_t(time.tv_sec) * 1000000000u + std::uint64_t(time.tv_nsec);
  }

  std::deque<Axis> axes_;
  FlightClock clock_;
  std::uint64_t step_begin_ = 0, waited_ = 0, waited_before_ = 0, computed_ = 0, untaken_ = 0;
  bool processor_time_ = false;
};

/// The times and the axis of a communicator; null of a rank that is alone.
struct TimesPlace {
  RankTimes* times = nullptr;
  RankTimes::Axis* axis = nullptr;
  std::uint64_t observed = 0;  ///< the number of a call that is under way, for tools; 0: none listens
};

/// Counts its life as a wait, unless it is inside of another one.
class Waiting {
 public:
  explicit Waiting(const TimesPlace& place) {
    if (place.times == nullptr || place.times->waiting) return;
    place_ = place;
    place_.times->waiting = true;
    begin_ = place_.times->now();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (place_.times == nullptr) return;
    place_.times->waited(*place_.axis, place_.times->now() - begin_);
    place_.times->waiting = false;
  }

 private:
  TimesPlace place_;
  std::uint64_t begin_ = 0;
};

}  // namespace weft::comm
