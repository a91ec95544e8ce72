// SPDX-License-Identifier: Apache-2.0
#pragma once
// Guards of a process that rehearses. TouchGuard replaces the handler of SIGSEGV and reports accesses to memory that a rehearsal
// does not have. ThreadGuard reports user threads that cannot be stopped. SilentOutput discards lines that the program has
// already printed.
//
//   const TouchGuard touches;
//   const ThreadGuard threads;
//   const SilentOutput silent(runs > 0);

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include <weft/device/rehearsal.hpp>

namespace weft::runtime::detail {

/// Reports in one line that the program touched memory that a rehearsal does not have, and ends it, instead of the system's
/// "Segmentation fault".
class TouchGuard {
 public:
  TouchGuard() {
    struct sigaction action = {};
    action.sa_sigaction = &touched;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~TouchGuard() { ::sigaction(SIGSEGV, &before_, nullptr); }
  TouchGuard(const TouchGuard&) = delete;
  TouchGuard& operator=(const TouchGuard&) = delete;

 private:
  static void touched(int, siginfo_t* info, void*) {
    if (!weft::detail::RehearsedMemory::holds(info->si_addr)) {
      ::signal(SIGSEGV, SIG_DFL);  // another error, which now occurs again with the default action
      return;
    }
    static constexpr char text[] =
        "weft: a rehearsal has no memory, and the program read or wrote elements of a tensor itself: copy_to_host and "
        "copy_from_host (zeros in a rehearsal), or weft's kernels and operations, in place of loops over data()\n";
    (void)!::write(2, text, sizeof text - 1);
    ::_exit(2);
  }
  struct sigaction before_ = {};
};

/// Reports in one line that user threads cannot be stopped: WEFT_REHEARSE_STEPS stops a program by throwing.
class ThreadGuard {
 public:
  ThreadGuard() : before_(std::set_terminate(&ended)) { first_ = first_ == nullptr ? before_ : first_; }
  ~ThreadGuard() { std::set_terminate(before_); }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  static void ended() {
    try {
      if (std::current_exception()) throw;
    } catch (const weft::detail::RehearsalEnd&) {
      static constexpr char text[] =
          "weft: WEFT_REHEARSE_STEPS ends the program where it begins one step more, which another thread does here: let "
          "that thread's loop end by itself, or leave WEFT_REHEARSE_STEPS out\n";
      (void)!::write(2, text, sizeof text - 1);
      ::_exit(2);
    } catch (...) {}
    if (first_ != nullptr) first_();
    std::abort();
  }
  static inline std::terminate_handler first_ = nullptr;  // the program's handler
  std::terminate_handler before_;
};

/// Discards writes to standard output while it exists. An earlier rehearsal has printed the program's lines.
class SilentOutput {
 public:
  explicit SilentOutput(bool silent) {
    if (!silent) return;
    std::cout.flush(), std::fflush(stdout);
    before_ = ::dup(STDOUT_FILENO);
    if (const int nothing = ::open("/dev/null", O_WRONLY); nothing >= 0) {
      if (before_ >= 0) ::dup2(nothing, STDOUT_FILENO);
      ::close(nothing);
    }
  }
  ~SilentOutput() {
    if (before_ < 0) return;
    std::cout.flush(), std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }
  SilentOutput(const SilentOutput&) = delete;
  SilentOutput& operator=(const SilentOutput&) = delete;

 private:
  int before_ = -1;
};

}  // namespace weft::runtime::detail
