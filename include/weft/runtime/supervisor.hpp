// SPDX-License-Identifier: Apache-2.0
#pragma once
// `supervise`: a parent process that starts the ranks of a program, and restarts them from the last checkpoint if one is lost.
// The ranks cannot do it themselves: MPI ends the whole job with a lost rank, and threads share one process. Call it first in
// main, before MPI, Kokkos or any thread; the process then does nothing else.
//
//   if (argc > 1 && argv[1] == std::string("--restarts"))
//     return runtime::supervise({.command = runtime::this_program(argc, argv, {"--restarts"}),
//                                .saved_step = [] { return checkpoint::saved_step("run"); }});

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/runtime/child_processes.hpp>

namespace weft::runtime {

/// The command to supervise, and the rules of restarts.
struct Supervision {
  /// A program and its arguments: one process of thread ranks, or a launcher with its program ("mpirun", "-np", "4", "./train").
  std::vector<std::string> command = {};
  /// Above 0: the number of processes to start over TCP on this computer, with the environment of torchrun (comm::Tcp).
  int processes = 0;
  int restarts = 3;
  /// Arguments added after a restart, such as --resume.
  std::vector<std::string> after_restart = {};
  /// The step of the checkpoint from which the program would resume; empty if there is none.
  std::function<std::optional<std::uint64_t>()> saved_step = {};
  /// Called if a restart has not reached a new checkpoint. It changes `command` and `processes` to fewer ranks, or returns false.
  /// Without it such a run ends.
  std::function<bool(Supervision&)> fewer = {};
  /// Wait before a restart. It doubles after each restart that has not reached a new checkpoint.
  double wait_s = 0.1, longest_wait_s = 10;
  /// Time for the other processes, after the first is lost, to report and to end.
  double grace_s = 3;
};

/// The command line of this program without some options and their values (`--name value` and `--name=value`).
inline std::vector<std::string> this_program(int argc, char** argv, const std::vector<std::string>& without = {}) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> command{error ? argv[0] : path.string()};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto names = [&](const std::string& option) { return word.substr(0, word.find('=')) == option; };
    if (std::none_of(without.begin(), without.end(), names)) command.emplace_back(word);
    else if (word.find('=') == word.npos) ++i;
  }
  return command;
}

namespace detail {

/// A port of the loopback interface without a listener.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!found) throw_error<Error>({"restarts: no free port at 127.0.0.1: ", std::strerror(error)});
  return ntohs(address.sin_port);
}

/// The signals that a supervisor forwards instead of ending, except those that the program ignores (nohup).
class PassedOnSignals {
 public:
  PassedOnSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::sigaddset(&set_, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  PassedOnSignals(const PassedOnSignals&) = delete;
  PassedOnSignals& operator=(const PassedOnSignals&) = delete;
  ~PassedOnSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  /// The signal that arrived within `patience`; 0: none, or the end of a child.
  int next(std::chrono::milliseconds patience) const {
    const timespec time{patience.count() / 1000, long(patience.count() % 1000) * 1000000};
    const int number = ::sigtimedwait(&set_, nullptr, &time);
    return number > 0 && number != SIGCHLD ? number : 0;
  }

 private:
  sigset_t set_, before_;
};

/// The reason why an attempt ended.
struct Outcome {
  std::size_t rank = 0;
  Ending ending;
  /// A restart repairs lost ranks. It does not help with impossible options (2), diverged training (3) or a processor that
  /// computes wrong bits (4), which would recur, and is not wanted after a stop request (130).
  bool mendable() const {
    const int code = ending.code();
    return ending.was_signalled() || (code != 0 && code != 2 && code != 3 && code != 4 && code != InterruptedError::code);
  }
  /// The process that caused the others' end ranks first: a killed process, then one that ended with an error that no restart
  /// mends.
  int weight() const { return ending.was_signalled() ? 3 : ending.code() == 0 ? 0 : mendable() ? 1 : 2; }
};

class Supervisor {
 public:
  explicit Supervisor(Supervision what) : what_(std::move(what)) {}

  int run() {
    for (int restart = 0;; ++restart) {
      const Outcome outcome = attempt(restart);
      children_.end_all();
      if (stopped_by_ != 0 || !outcome.mendable()) return outcome.ending.code();
      const std::string reason = reason_of(outcome);
      const std::optional<std::uint64_t> saved = what_.saved_step ? what_.saved_step() : std::nullopt;
      const std::string from = saved ? weft::detail::joined({"step ", *saved}) : "the beginning";
      if (restart >= what_.restarts) {
        say({"no restart: ", reason, "; ", what_.restarts, what_.restarts == 1 ? " restart is" : " restarts are", " used up, ",
             saved ? "the last checkpoint is of " + from : "and there is no checkpoint"});
        return outcome.ending.code();
      }
      std::string with;
      const bool gained = restart == 0 || saved != last_saved_;
      if (!gained) {
        if (!what_.fewer || !what_.fewer(what_)) {
          say({"no restart: ", reason, "; restart ", restart, " from ", from, " has gained no checkpoint"});
          return outcome.ending.code();
        }
        with = " with fewer ranks";
      }
      last_saved_ = saved;
      say({"restart ", restart + 1, " of ", what_.restarts, " from ", from, with, ": ", reason});
      wait_s_ = gained ? what_.wait_s : std::min(2 * wait_s_, what_.longest_wait_s);
      for (const auto until = Clock::now() + std::chrono::duration<double>(wait_s_); Clock::now() < until;)
        if (signals_.next(std::chrono::milliseconds(20)) != 0) return InterruptedError::code;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  Outcome attempt(int restart) {
    start(restart);
    std::optional<Outcome> worst;
    std::optional<Clock::time_point> lost;  // when the first process was lost
    while (children_.running()) {
      if (const int number = signals_.next(std::chrono::milliseconds(20)); number != 0) {
        stopped_by_ = number;
        children_.signal(++stops_ > 2 ? SIGKILL : number);
      }
      for (const auto& [rank, ending] : children_.ended()) {
        const Outcome outcome{rank, ending};
        if (!worst || outcome.weight() > worst->weight()) worst = outcome;
        if (outcome.weight() > 0 && !lost) lost = Clock::now();
      }
      if (lost && stopped_by_ == 0 && Clock::now() - *lost > std::chrono::duration<double>(what_.grace_s)) break;
    }
    return worst.value_or(Outcome{});
  }

  void start(int restart) {
    std::vector<std::string> command = what_.command;
    if (restart > 0) command.insert(command.end(), what_.after_restart.begin(), what_.after_restart.end());
    if (what_.processes == 0) return children_.start(command, {});
    const std::string port = std::to_string(free_port()), world = std::to_string(what_.processes);
    const std::string job = weft::detail::joined({"supervised by ", std::int64_t(::getpid()), ", start ", restart});
    for (int rank = 0; rank < what_.processes; ++rank) {
      const std::string own = std::to_string(rank);
      children_.start(command, {{"RANK", own},
                                {"LOCAL_RANK", own},
                                {"WORLD_SIZE", world},
                                {"LOCAL_WORLD_SIZE", world},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", port},
                                {"WEFT_JOB", job},
                                {"WEFT_STORE_PORT", ""}});
    }
  }

  std::string reason_of(const Outcome& outcome) const {
    if (what_.processes > 0) return weft::detail::joined({"rank ", outcome.rank, " ", outcome.ending.text()});
    return std::filesystem::path(what_.command[0]).filename().string() + " " + outcome.ending.text();
  }
  static void say(weft::detail::Words words) {
    std::fprintf(stderr, "weft: %s\n", weft::detail::joined(words).c_str());
    std::fflush(stderr);
  }

  Supervision what_;
  PassedOnSignals signals_;
  ChildProcesses children_;
  std::optional<std::uint64_t> last_saved_;
  double wait_s_ = 0;
  int stopped_by_ = 0, stops_ = 0;
};

}  // namespace detail

/// Starts the program and restarts it if it is lost: a process was killed, or ended with an exit code other than 0, 2, 3, 4 and
/// 130. Each restart prints one line to standard error with its reason and the step from which it resumes. SIGINT, SIGTERM and
/// SIGHUP are forwarded to the processes and disable restarts; the third signal kills. No process is left when this returns, nor
/// if this process is killed.
///
/// Returns the exit code of the last attempt, 128 + the signal's number if one ended it; 2 if the program cannot be started, 130
/// if a signal arrived between two attempts. Unsuitable for a process with other children: it kills all of them.
inline int supervise(const Supervision& what) {
  try {
    if (what.command.empty()) throw_error<UsageError>({"restarts: there is no program to start"});
    return detail::Supervisor(what).run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft: restarts: %s\n", error.what());
    return 1;
  }
}

}  // namespace weft::runtime
