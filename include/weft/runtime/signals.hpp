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
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <weft/comm/flight_file.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/error.hpp>

namespace weft::runtime::detail {

/// The thread that receives the signals. It ends a process that does not notice a stop request, because it is in a call of
/// another library or never checks. It sleeps until a signal arrives.
class StopWatch {
 public:
  /// Time after the limit of a wait for its error to be reported and for the other ranks to end.
  static constexpr std::chrono::milliseconds to_unwind{3000};

  /// This thread receives `signals` and no others.
  explicit StopWatch(const sigset_t& signals) {
    ::sem_init(&woken_, 0, 0);
    sigset_t all, before;
    ::sigfillset(&all);
    for (const int number : {SIGINT, SIGTERM})
      if (::sigismember(&signals, number) == 1) ::sigdelset(&all, number);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([] { watch(); });
    } catch (const std::system_error&) {}  // without this thread the second signal ends the process
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bool runs() const { return thread_.joinable(); }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  ~StopWatch() {
    ending_.store(true);
    wake();
    if (thread_.joinable()) thread_.join();
    ending_.store(false);
    ::sem_destroy(&woken_);
  }
  /// Async-signal-safe.
  static void wake() noexcept { ::sem_post(&woken_); }

 private:
  static void watch() {
    while (::sem_wait(&woken_) != 0) {}
    if (!ending_.load()) comm::write_flights(comm::detail::stop_text());  // a launcher such as mpirun kills soon after
    for (; !ending_.load(); std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      if (const std::string call = comm::detail::BlockingCall::overdue(); !call.empty())
        end(weft::detail::joined(
            {comm::detail::stop_text(), " inside of ", call, ", which waits for other ranks and did not return"}));
      if (!comm::detail::stop_state.heeded.load() &&
          comm::detail::StopClock::now() - comm::detail::stopped_since() > comm::detail::stop_patience() + to_unwind)
        end(weft::detail::joined({comm::detail::stop_text(), ", and the program neither ended nor asked world.interrupted()"}));
    }
  }
  [[noreturn]] static void end(const std::string& text) {
    std::fprintf(stderr, "weft: %s\n", text.c_str());
    std::fflush(stderr);
    std::_Exit(InterruptedError::code);
  }

  inline static sem_t woken_;
  inline static std::atomic<bool> ending_{false};
  std::thread thread_;
};

/// Installs the handlers, and restores the previous ones.
class SignalGuard {
 public:
  /// A guard inside another one (a rank that calls `run`) does nothing.
  WEFT_COLD explicit SignalGuard(Signals how) : outermost_(guards_.fetch_add(1) == 0) {
    if (!outermost_) return;
    auto& state = comm::detail::stop_state;
    state.heeded.store(false);
    state.patience_ms.store(0);
    for (auto& one : seen_) one.store(0);
    if (how == Signals::never) return;
    sigset_t requests;
    ::sigemptyset(&requests);
    for (Taken* one : {&interrupt_, &terminate_})
      if (may_take(*one, how)) ::sigaddset(&requests, one->number);
    watch_.emplace(requests);  // before the handlers, which wake it
    take(interrupt_, how, handle);
    take(terminate_, how, handle);
    // The threads and programs started from here inherit the mask. oneDNN's kernels store numbers below their stack pointer,
    // where a handler would overwrite them.
    blocked_ = watch_->runs() && ::pthread_sigmask(SIG_BLOCK, &requests, &unblocked_) == 0;
    take(file_size_, how, SIG_IGN);
    take(broken_pipe_, how, SIG_IGN);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() {
    for (const Taken* taken : {&interrupt_, &terminate_, &file_size_, &broken_pipe_})
      if (taken->taken) ::sigaction(taken->number, &taken->before, nullptr);
    watch_.reset();
    if (blocked_) ::pthread_sigmask(SIG_SETMASK, &unblocked_, nullptr);
    if (outermost_ && (interrupt_.taken || terminate_.taken))
      comm::detail::stop_state.signal.store(0);  // the request belonged
                                                 // to this run
    guards_.fetch_sub(1);
  }

 private:
  struct Taken {
    int number;
    bool taken = false;
    struct sigaction before {};
  };
  static bool may_take(Taken& one, Signals how) {
    if (::sigaction(one.number, nullptr, &one.before) != 0) return false;
    const bool own = (one.before.sa_flags & SA_SIGINFO) != 0 || one.before.sa_handler != SIG_DFL;
    return !own || how == Signals::always;
  }
  static void take(Taken& one, Signals how, void (*handler)(int)) {
    if (!may_take(one, how)) return;
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    one.taken = ::sigaction(one.number, &action, nullptr) == 0;
  }
  /// Two equal signals within this time are one request that arrived twice: a launcher forwards the signal that its group also
  /// received.
  static constexpr std::int64_t one_request_ns = 200'000'000;
  static void handle(int number) {
    const int before = errno;
    const std::int64_t now = std::chrono::nanoseconds(comm::detail::StopClock::now().time_since_epoch()).count();
    std::int64_t first = 0;
    if (!seen_[number == SIGINT ? 0 : 1].compare_exchange_strong(first, now)) {
      if (now - first > one_request_ns) {  // the second request has its default effect
        ::signal(number, SIG_DFL);
        ::raise(number);
      }
      errno = before;
      return;
    }
    comm::request_stop(number);
    StopWatch::wake();
    errno = before;
  }

  inline static std::atomic<int> guards_{0};
  inline static std::atomic<std::int64_t> seen_[2]{};  // time of the first SIGINT and of the first SIGTERM, or 0
  const bool outermost_;
  std::optional<StopWatch> watch_;
  sigset_t unblocked_;
  bool blocked_ = false;
  Taken interrupt_{SIGINT}, terminate_{SIGTERM}, file_size_{SIGXFSZ}, broken_pipe_{SIGPIPE};
};

}  // namespace weft::runtime::detail
