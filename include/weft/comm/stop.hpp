// SPDX-License-Identifier: Apache-2.0
#pragma once
// A request to stop (Ctrl-C, SIGTERM, or a host program's own) and its limit: how much longer a wait in communication may last. A
// program that asks World::interrupted or World::stop_requested ends at a step of its choice, and needs the waits of that step; a
// rank that is gone would make it wait until the deadline. So every wait goes on for a limited time after the request, and then
// throws InterruptedError, which names the call and the rank that is missing: exit code 130.
//
//   comm::request_stop(SIGTERM);                       // in a signal handler, or in a host program's own shutdown
//   if (comm::detail::wait_must_end(start)) throw ...  // in a wait that began at `start`

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/operation.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

namespace detail {

using StopClock = std::chrono::steady_clock;

/// The process's request to stop; a signal handler writes it, so all of it is lock-free.
struct StopState {
  std::atomic<int> signal{0};  ///< 0: none
  std::atomic<std::int64_t> since{0};
  std::atomic<bool> heeded{false};           ///< the program asks for it, and so ends by itself
  std::atomic<std::int64_t> patience_ms{0};  ///< of a wait, as the user set it; 0: the default
};
inline StopState stop_state;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler may only touch what is lock-free");

/// A program that heeds the request finishes a step; one that does not is ended.
inline constexpr std::chrono::milliseconds patience_if_heeded{10000}, patience_otherwise{1000};

inline std::chrono::milliseconds stop_patience() {
  if (const auto set = stop_state.patience_ms.load(std::memory_order_relaxed); set > 0) return std::chrono::milliseconds(set);
  return stop_state.heeded.load(std::memory_order_relaxed) ? patience_if_heeded : patience_otherwise;
}
inline StopClock::time_point stopped_since() {
  return StopClock::time_point(StopClock::duration(stop_state.since.load(std::memory_order_relaxed)));
}
inline bool stop_pending() { return stop_state.signal.load(std::memory_order_acquire) != 0; }

/// True if a wait that began at `start` has lasted too long since the process was asked to stop.
inline bool wait_must_end(StopClock::time_point start) {
  return stop_pending() && StopClock::now() - std::max(start, stopped_since()) > stop_patience();
}
/// True if a new operation should not begin: the process was asked to stop, and the program has not looked since.
inline bool call_must_end() {
  return stop_pending() && !stop_state.heeded.load(std::memory_order_relaxed) &&
         StopClock::now() - stopped_since() > stop_patience();
}

/// "interrupted by SIGTERM".
WEFT_COLD inline std::string stop_text() {
  const int number = stop_state.signal.load(std::memory_order_relaxed);
  return number == SIGINT    ? "interrupted by SIGINT (Ctrl-C)"
         : number == SIGTERM ? "interrupted by SIGTERM"
                             : weft::detail::joined({"interrupted by signal ", number});
}

/// Ends a wait. `missing` names the rank that has not come, or is empty.
[[noreturn]] WEFT_COLD inline void throw_interrupted(int rank, std::string_view axis, const Call& call, std::uint64_t sequence,
                                                     std::string_view missing) {
  throw_error<InterruptedError>({"rank ", rank, ", axis ", axis, ", ", describe(call), " #", sequence, ": ", stop_text(),
                                 " and waited ", long(stop_patience().count()), " ms more for ",
                                 missing.empty() ? "the other ranks" : missing, ", in vain"});
}
/// Ends an operation that has not begun.
[[noreturn]] WEFT_COLD inline void throw_interrupted(int rank, std::string_view axis, const Call& call, std::uint64_t sequence) {
  throw_error<InterruptedError>({"rank ", rank, ", axis ", axis, ", ", describe(call), " #", sequence, ": ", stop_text(),
                                 ", and the program does not ask world.interrupted()"});
}
inline void expect_no_stop(int rank, std::string_view axis, const Call& call, std::uint64_t sequence) {
  if (call_must_end()) [[unlikely]]
    throw_interrupted(rank, axis, call, sequence);
}

/// Says that this process is inside of a call of another library, which cannot be made to return: the process ends there if it
/// was asked to stop (runtime/stop_watch.hpp).
class BlockingCall {
 public:
  explicit BlockingCall(std::string what) : what_(std::move(what)), began_(StopClock::now()) { exchange(this); }
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;
  ~BlockingCall() { exchange(outer_); }

  /// The text of a call that has to end; empty if there is none.
  static std::string overdue() {
    const std::lock_guard lock(mutex_);
    return current_ != nullptr && wait_must_end(current_->began_) ? current_->what_ : std::string();
  }

 private:
  void exchange(BlockingCall* next) {
    const std::lock_guard lock(mutex_);
    if (next == this) outer_ = current_;
    current_ = next;
  }
  inline static std::mutex mutex_;
  inline static BlockingCall* current_ = nullptr;

  std::string what_;
  StopClock::time_point began_;
  BlockingCall* outer_ = nullptr;
};

}  // namespace detail

/// Asks this process to stop, as a signal does: for a program that handles signals itself. May be called in a signal handler.
inline void request_stop(int signal = SIGTERM) noexcept {
  detail::stop_state.since.store(detail::StopClock::now().time_since_epoch().count(), std::memory_order_relaxed);
  detail::stop_state.signal.store(signal, std::memory_order_release);
}

/// The signal that asked this process to stop, or 0.
inline int stop_signal() { return detail::stop_state.signal.load(std::memory_order_relaxed); }

}  // namespace weft::comm
