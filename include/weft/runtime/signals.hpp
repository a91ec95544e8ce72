// SPDX-License-Identifier: Apache-2.0
#pragma once
// The signals of a program that `run` launches. The first Ctrl-C or SIGTERM requests a stop (comm/stop.hpp); the second one has
// its default effect. A write to a closed pipe (SIGPIPE), or beyond the limit of a file's size (SIGXFSZ), fails with an error.
// Handlers that the program has installed stay, and so do signals that it ignores.
//
//   const SignalGuard signals(Signals::unless_handled);

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <weft/comm/run_options.hpp>
#include <weft/comm/stop.hpp>

namespace weft::runtime::detail {

/// The thread that receives the signals. It ends a process that does not notice a stop request, because it is in a call of
/// another library or never checks. It sleeps until a signal arrives.
class StopWatch {
 public:
  /// Time after the limit of a wait for its error to be reported and for the other ranks to end.
  static constexpr std::chrono::milliseconds to_unwind{3000};

  /// This thread receives `signals` and no others.
  explicit StopWatch(const sigset_t& signals);
  bool runs() const { return thread_.joinable(); }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  ~StopWatch();
  /// Async-signal-safe.
  static void wake() noexcept { ::sem_post(&woken_); }

 private:
  static void watch();
  [[noreturn]] static void end(const std::string& text);

  inline static sem_t woken_;
  inline static std::atomic<bool> ending_{false};
  std::thread thread_;
};

/// Installs the handlers, and restores the previous ones.
class SignalGuard {
 public:
  /// A guard inside another one (a rank that calls `run`) does nothing.
  explicit SignalGuard(Signals how);
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard();

 private:
  struct Taken {
    int number;
    bool taken = false;
    struct sigaction before {};
  };
  static bool may_take(Taken& one, Signals how);
  static void take(Taken& one, Signals how, void (*handler)(int));
  /// Two equal signals within this time are one request that arrived twice: a launcher forwards the signal that its group also
  /// received.
  static constexpr std::int64_t one_request_ns = 200'000'000;
  static void handle(int number);

  inline static std::atomic<int> guards_{0};
  inline static std::atomic<std::int64_t> seen_[2]{};  // time of the first SIGINT and of the first SIGTERM, or 0
  const bool outermost_;
  std::optional<StopWatch> watch_;
  sigset_t unblocked_;
  bool blocked_ = false;
  Taken interrupt_{SIGINT}, terminate_{SIGTERM}, file_size_{SIGXFSZ}, broken_pipe_{SIGPIPE};
};

}  // namespace weft::runtime::detail

#ifndef WEFT_COMPILED
#include <weft/runtime/signals_impl.hpp>
#endif
