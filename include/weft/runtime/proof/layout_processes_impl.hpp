// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layout's process and its notes. Definitions for runtime/proof/layout_processes.hpp.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <thread>

#include <weft/comm/threads.hpp>
#include <weft/core/error.hpp>
#include <weft/runtime/child_processes.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/proof/assembly.hpp>
#include <weft/runtime/proof/layout_processes.hpp>

namespace weft::runtime::detail {

/// The end of a run as ProofNotes::ending.
WEFT_COLD WEFT_INLINE std::uint8_t proof_ending(const std::exception_ptr& error, const ProofNotes& notes) {
  enum : std::uint8_t { impossible = 1, fails = 2, refused_by_program = 3 };
  try {
    std::rethrow_exception(error);
  } catch (const LayoutError&) {
    return notes.computed ? fails : impossible;
  } catch (const ShapeError&) {
    return notes.computed ? fails : impossible;
  } catch (const Error&) {
    return fails;
  } catch (const std::exception&) {
    return notes.steps == 0 ? refused_by_program : fails;
  } catch (...) {
    return fails;
  }
}

/// Runs the program as thread ranks and returns what they have noted.
WEFT_COLD WEFT_INLINE void run_layout(const LayoutProcesses::Program& program, const ProofLayout& layout, const ProofRun& run,
                                      int seconds, ProofNotes& notes) {
  comm::RunResult ending;
  try {
    static KokkosGuard* const kokkos = new KokkosGuard(layout.ranks);  // never undone: the process ends without it
    (void)kokkos;
    ending = comm::threads::run(
        layout.ranks, std::chrono::seconds(std::max(1, seconds - 5)),
        [&](std::shared_ptr<comm::Group> group) {
          const RankInstance<DefaultDevice::execution_space> instance(group->rank(), layout.ranks, 1);
          DefaultDevice device(instance.exec);
          Proof proof(notes, layout, group->rank());
          proof.gradients = run.gradients, proof.batches = run.batches, proof.wanted_steps = run.steps;
          proof.noise = run.noise, proof.noise_seed = run.noise_seed, proof.results = run.results;
          device.prove(proof);
          World world(Communicator(std::move(group), order_on(device.exec())), device);
          try {
            program(world);
          } catch (const weft::detail::ProofEnd&) {}  // the program has taken the wanted steps
        },
        std::chrono::milliseconds(1500));
  } catch (...) {
    ending.error = std::current_exception();
  }
  if (!ending.error) return;
  const std::lock_guard lock(notes.mutex);
  notes.error = Report(ending.error).text;
  notes.ending = proof_ending(ending.error, notes);
}

WEFT_COLD WEFT_INLINE std::string contents_of(int descriptor) {
  std::string text(std::size_t(std::max<off_t>(0, ::lseek(descriptor, 0, SEEK_END))), '\0');
  std::size_t done = 0;
  for (ssize_t got = 0;
       done < text.size() && (got = ::pread(descriptor, text.data() + done, text.size() - done, off_t(done))) > 0;)
    done += std::size_t(got);
  text.resize(done);
  return text;
}

WEFT_COLD WEFT_INLINE LayoutProcesses::LayoutProcesses(const Program& program, int layout_seconds)
    : program_(&program), seconds_(layout_seconds), of_children_() {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &usual, &of_children_);  // with SIGCHLD ignored, waitpid would return no status
}

WEFT_COLD WEFT_INLINE LayoutProcesses::~LayoutProcesses() {
  for (const Child& child : children_) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    ::close(child.notes), ::close(child.errors);
  }
  ::sigaction(SIGCHLD, &of_children_, nullptr);
}

WEFT_COLD WEFT_INLINE void LayoutProcesses::start(std::size_t number, const ProofLayout& layout, const ProofRun& run) {
  Child child{number, -1, ::memfd_create("weft proof", MFD_CLOEXEC), ::memfd_create("weft errors", MFD_CLOEXEC),
              std::chrono::steady_clock::now()};
  std::cout.flush(), std::fflush(stdout), std::fflush(stderr);
  const pid_t parent = ::getpid();
  if (child.notes >= 0 && child.errors >= 0) child.pid = ::fork();
  if (child.pid < 0) {
    const int error = errno;
    for (const int descriptor : {child.notes, child.errors})
      if (descriptor >= 0) ::close(descriptor);
    throw_error<Error>(
        {"a proof cannot start another process: ", std::strerror(error), "; WEFT_PROVE_PROCESSES=1 runs one at a time"});
  }
  if (child.pid != 0) return children_.push_back(child);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) ::signal(signal, SIG_DFL);
  for (const char* const files : {"WEFT_FLIGHT_DIR", "WEFT_TRACE"}) ::unsetenv(files);  // layouts would overwrite each other's
  if (const int nothing = ::open("/dev/null", O_RDWR); nothing >= 0)
    ::dup2(nothing, STDIN_FILENO), ::dup2(nothing, STDOUT_FILENO);
  ::dup2(child.errors, STDERR_FILENO);
  auto* const notes = new ProofNotes;  // a rank that computes on may still write
  run_layout(*program_, layout, run, seconds_, *notes);
  const std::lock_guard lock(notes->mutex);
  assemble(*notes);
  const std::string bytes = notes->bytes();
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(child.notes, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno != EINTR) ::_exit(1);
    done += std::size_t(std::max<ssize_t>(0, written));
  }
  ::_exit(0);
}

WEFT_COLD WEFT_INLINE std::unique_ptr<ProofNotes> LayoutProcesses::notes_of(const Child& child, int status) const {
  auto notes = std::make_unique<ProofNotes>();
  if (notes->read(contents_of(child.notes))) return notes;
  notes = std::make_unique<ProofNotes>();
  notes->ending = 2;
  notes->error = child.killed ? weft::detail::joined({"it has not ended within ", seconds_, " s (WEFT_PROVE_LAYOUT_SECONDS)"})
                              : weft::detail::joined({"its process ", Ending{status}.text(), " in the program"});
  std::string last = contents_of(child.errors);
  while (!last.empty() && last.back() == '\n') last.pop_back();
  last.erase(0, last.rfind('\n') + 1);
  if (!last.empty()) notes->error += ": " + last.substr(0, 400);
  return notes;
}

WEFT_COLD WEFT_INLINE std::vector<LayoutProcesses::Ended> LayoutProcesses::ended() {
  std::vector<Ended> all;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (std::size_t i = children_.size(); i-- > 0;) {
    Child& child = children_[i];
    int status = 0;
    const pid_t done = ::waitpid(child.pid, &status, WNOHANG);
    if (done == 0) {
      if (!child.killed && std::chrono::steady_clock::now() - child.begin > std::chrono::seconds(seconds_)) {
        child.killed = true;
        ::kill(child.pid, SIGKILL);
      }
      continue;
    }
    all.push_back({child.number, notes_of(child, status)});
    ::close(child.notes), ::close(child.errors);
    children_.erase(children_.begin() + std::ptrdiff_t(i));
  }
  return all;
}

WEFT_COLD WEFT_INLINE std::unique_ptr<ProofNotes> LayoutProcesses::run(const ProofLayout& layout, const ProofRun& run) {
  constexpr std::size_t mine = std::size_t(-1);
  start(mine, layout, run);
  for (;;)
    for (auto& [number, notes] : ended())
      if (number == mine) return std::move(notes);
}

}  // namespace weft::runtime::detail
