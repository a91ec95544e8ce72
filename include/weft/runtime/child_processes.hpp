// SPDX-License-Identifier: Apache-2.0
#pragma once
// The processes that a supervisor has started: one object to signal them, wait for them and end them. None outlives the
// supervisor. The kernel kills them if it dies; children that a launcher leaves behind are found in the kernel's list and killed.
//
//   ChildProcesses children;
//   children.start({"/usr/bin/mpirun", "-np", "4", "./train"}, {});

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>

extern "C" {
extern char** environ;
}

namespace weft::runtime::detail {

/// The end of a process, from waitpid.
struct Ending {
  int status = 0;
  bool was_signalled() const { return WIFSIGNALED(status); }
  int signal() const { return WTERMSIG(status); }
  /// The exit code as a shell computes it.
  int code() const { return was_signalled() ? 128 + signal() : WEXITSTATUS(status); }
  std::string text() const {
    if (!was_signalled()) return weft::detail::joined({"ended with exit code ", code()});
    constexpr std::pair<int, const char*> names[] = {{SIGKILL, " (SIGKILL)"}, {SIGSEGV, " (SIGSEGV)"}, {SIGABRT, " (SIGABRT)"},
                                                     {SIGBUS, " (SIGBUS)"},   {SIGTERM, " (SIGTERM)"}, {SIGINT, " (SIGINT)"}};
    const char* name = "";
    for (const auto& [number, text] : names)
      if (number == signal()) name = text;
    return weft::detail::joined({"was killed by signal ", signal(), name});
  }
};

class ChildProcesses {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  /// Orphaned processes become this process's children from here on.
  ChildProcesses() : parent_(::getpid()) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &usual, nullptr);  // with SIGCHLD ignored, waitpid would return no status
  }
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;
  ~ChildProcesses() {
    end_all();
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  /// Starts a program, found in PATH. `changes` sets variables of the environment, or removes them if the value is empty. All
  /// processes since `end_all` form one process group. Throws UsageError if the program cannot be started.
  void start(const std::vector<std::string>& command, const Environment& changes) {
    std::vector<std::string> variables = environment(changes);
    std::vector<std::string> words = command;
    const std::vector<char*> argv = pointers(words), envp = pointers(variables);
    int error_pipe[2];
    if (::pipe2(error_pipe, O_CLOEXEC) != 0) refuse(command[0], errno);
    const pid_t group = group_;
    const pid_t pid = ::fork();
    if (pid == 0) {  // only async-signal-safe calls
      ::setpgid(0, group);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent_) ::_exit(1);  // the parent died before PR_SET_PDEATHSIG took effect
      sigset_t none;
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::execvpe(argv[0], argv.data(), envp.data());
      const int error = errno;
      if (::write(error_pipe[1], &error, sizeof error) < 0) ::_exit(126);
      ::_exit(127);
    }
    const int failed = pid < 0 ? errno : 0;
    ::close(error_pipe[1]);
    int error = 0;
    ssize_t got = 0;
    while (pid > 0 && (got = ::read(error_pipe[0], &error, sizeof error)) < 0 && errno == EINTR) {}
    ::close(error_pipe[0]);
    if (pid < 0) refuse(command[0], failed);
    if (got > 0) {
      ::waitpid(pid, nullptr, 0);
      refuse(command[0], error);
    }
    if (group_ == 0) group_ = pid;
    running_.push_back(pid);
    started_.push_back(pid);
  }

  bool running() const { return !running_.empty(); }
  void signal(int number) const {
    for (const pid_t pid : running_) ::kill(pid, number);
  }
  /// Processes that have ended since the last call: their number in the order of starting, and their ending.
  std::vector<std::pair<std::size_t, Ending>> ended() {
    std::vector<std::pair<std::size_t, Ending>> found;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (std::erase(running_, pid) == 0) continue;  // a process of a launcher, adopted when the launcher ended
      for (std::size_t i = 0; i < started_.size(); ++i)
        if (started_[i] == pid) found.push_back({i, Ending{status}});
    }
    return found;
  }
  /// Kills all remaining processes, including launchers' children in other process groups, and waits until they are gone.
  void end_all() {
    if (group_ == 0) return;
    ::kill(-group_, SIGKILL);
    for (const pid_t pid : running_) ::kill(pid, SIGKILL);
    for (;;) {
      for (const pid_t pid : children()) ::kill(pid, SIGKILL);  // a killed process passes its children to this one
      const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
      if (pid < 0 && errno == ECHILD) break;
      if (pid == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    running_.clear();
    started_.clear();
    group_ = 0;
  }

 private:
  static std::vector<std::string> environment(const Environment& changes) {
    std::vector<std::string> variables;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      bool changed = false;
      for (const auto& [name, value] : changes) changed = changed || text.substr(0, text.find('=')) == name;
      if (!changed) variables.emplace_back(text);
    }
    for (const auto& [name, value] : changes)
      if (!value.empty()) variables.push_back(name + "=" + value);
    return variables;
  }
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  }
  /// The children in the kernel's list. Without the list (an unusual kernel), only the process group is ended.
  static std::vector<pid_t> children() {
    const std::string self = std::to_string(::getpid());
    std::ifstream list("/proc/" + self + "/task/" + self + "/children");
    std::vector<pid_t> all;
    for (pid_t pid = 0; list >> pid;) all.push_back(pid);
    return all;
  }
  [[noreturn]] static void refuse(const std::string& program, int error) {
    throw_error<UsageError>({"restarts: cannot start '", program, "': ", std::strerror(error)});
  }

  const pid_t parent_;
  pid_t group_ = 0;
  std::vector<pid_t> started_, running_;
};

}  // namespace weft::runtime::detail
