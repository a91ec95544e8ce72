// SPDX-License-Identifier: Apache-2.0
#pragma once
// The clock of the flight recorder: the processor's own counter, if it runs at one rate on all cores, for a call of the system's
// clocks costs some 25 ns and a collective of thread ranks a microsecond. A dump reads the system's clocks beside it, and puts
// times between its first reading and that one.
//
//   const FlightClock clock;
//   const std::uint64_t at = FlightClock::ticks();
//   clock.now().nanoseconds(at);   // since 1970

#include <chrono>
#include <cstdint>

#include <weft/core/standard.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace weft::comm {

/// Times in ticks, and their values on the system's clocks.
class FlightClock {
 public:
  FlightClock() : first_(read()) {}

  /// Nondecreasing on one thread.
  static std::uint64_t ticks() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (constant_rate) [[likely]] {
      std::uint32_t low = 0, high = 0;
      __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
      return std::uint64_t(high) << 32 | low;
    }
#elif defined(__aarch64__) && defined(__GNUC__)
    std::uint64_t count = 0;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#endif
    return steady();
  }

  /// All clocks at one moment.
  struct Reading {
    std::uint64_t ticks = 0, steady_ns = 0;
    std::int64_t wall_ns = 0;  ///< since 1970
  };

  /// Ticks as times. The wall clock is read once, at the end, so that a step of it (NTP) does not turn the order of calls round.
  class Scale {
   public:
    Scale(const Reading& first, const Reading& last)
        : last_(last),
          rate_(last.ticks > first.ticks ? double(last.steady_ns - first.steady_ns) / double(last.ticks - first.ticks) : 1.0) {}
    std::int64_t wall_ns(std::uint64_t at) const { return last_.wall_ns + since_last(at); }
    std::int64_t steady_ns(std::uint64_t at) const { return std::int64_t(last_.steady_ns) + since_last(at); }
    const Reading& last() const { return last_; }

   private:
    std::int64_t since_last(std::uint64_t at) const { return std::int64_t(double(std::int64_t(at - last_.ticks)) * rate_); }
    Reading last_;
    double rate_;  // nanoseconds a tick
  };
  Scale now() const { return Scale(first_, read()); }
  const Reading& first() const { return first_; }

 private:
  static std::uint64_t steady() {
    return std::uint64_t(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  static Reading read() {
    const std::int64_t wall = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    return {ticks(), steady(), wall};
  }
#if defined(__x86_64__) && defined(__GNUC__)
  static bool has_constant_rate() {
    unsigned a = 0, b = 0, c = 0, d = 0;  // "invariant TSC"
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
  }
  inline static const bool constant_rate = has_constant_rate();
#endif
  Reading first_;
};

}  // namespace weft::comm
