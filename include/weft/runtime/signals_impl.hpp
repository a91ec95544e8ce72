// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread and the handlers that receive signals. Definitions for runtime/signals.hpp.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <weft/comm/flight_file.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/runtime/signals.hpp>

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE StopWatch::StopWatch(const sigset_t& signals) {
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

WEFT_COLD WEFT_INLINE StopWatch::~StopWatch() {
  ending_.store(true);
  wake();
  if (thread_.joinable()) thread_.join();
  ending_.store(false);
  ::sem_destroy(&woken_);
}

WEFT_COLD WEFT_INLINE void StopWatch::watch() {
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

WEFT_COLD WEFT_INLINE void StopWatch::end(const std::string& text) {
  std::fprintf(stderr, "weft: %s\n", text.c_str());
  std::fflush(stderr);
  std::_Exit(InterruptedError::code);
}

WEFT_COLD WEFT_INLINE SignalGuard::SignalGuard(Signals how) : outermost_(guards_.fetch_add(1) == 0) {
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

WEFT_COLD WEFT_INLINE SignalGuard::~SignalGuard() {
  for (const Taken* taken : {&interrupt_, &terminate_, &file_size_, &broken_pipe_})
    if (taken->taken) ::sigaction(taken->number, &taken->before, nullptr);
  watch_.reset();
  if (blocked_) ::pthread_sigmask(SIG_SETMASK, &unblocked_, nullptr);
  if (outermost_ && (interrupt_.taken || terminate_.taken))
    comm::detail::stop_state.signal.store(0);  // the request belonged to this run
  guards_.fetch_sub(1);
}

WEFT_COLD WEFT_INLINE bool SignalGuard::may_take(Taken& one, Signals how) {
  if (::sigaction(one.number, nullptr, &one.before) != 0) return false;
  const bool own = (one.before.sa_flags & SA_SIGINFO) != 0 || one.before.sa_handler != SIG_DFL;
  return !own || how == Signals::always;
}

WEFT_COLD WEFT_INLINE void SignalGuard::take(Taken& one, Signals how, void (*handler)(int)) {
  if (!may_take(one, how)) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  one.taken = ::sigaction(one.number, &action, nullptr) == 0;
}

WEFT_COLD WEFT_INLINE void SignalGuard::handle(int number) {
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

}  // namespace weft::runtime::detail
