// SPDX-License-Identifier: Apache-2.0
#pragma once
// The child processes of a proof: each runs the program in one layout, with thread ranks, and returns its notes through memory
// that it shares with its parent. A crash or a hang is a finding of that layout, and layouts run side by side.
//
//   LayoutProcesses children(program, 60);
//   children.start(7, layout, {.steps = 2});
//   while (children.running() != 0)
//     for (auto& [number, notes] : children.ended()) ...

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <weft/device/proof.hpp>
#include <weft/mesh/world.hpp>

namespace weft::runtime::detail {

using weft::detail::Proof;
using weft::detail::ProofLayout;
using weft::detail::ProofNotes;

/// The settings of one run; see Proof.
struct ProofRun {
  int steps = 2;
  const ProofNotes *gradients = nullptr, *batches = nullptr;
  double noise = 0;
  std::uint64_t noise_seed = 0;
  bool results = false;
};

class LayoutProcesses {
 public:
  using Program = std::function<int(World&)>;
  using Ended = std::pair<std::size_t, std::unique_ptr<ProofNotes>>;

  LayoutProcesses(const Program& program, int layout_seconds);
  LayoutProcesses(const LayoutProcesses&) = delete;
  LayoutProcesses& operator=(const LayoutProcesses&) = delete;
  /// Kills those that still run.
  ~LayoutProcesses();

  /// Starts a run. Throws Error if the system has no room for another process.
  void start(std::size_t number, const ProofLayout& layout, const ProofRun& run);
  std::size_t running() const { return children_.size(); }
  /// The runs that have ended since the last call, after a short wait. One that crashed or took too long has an error.
  std::vector<Ended> ended();
  /// Starts a run and waits for it.
  std::unique_ptr<ProofNotes> run(const ProofLayout& layout, const ProofRun& run);

 private:
  struct Child {
    std::size_t number;
    pid_t pid;
    int notes, errors;  // descriptors of memory
    std::chrono::steady_clock::time_point begin;
    bool killed = false;
  };
  std::unique_ptr<ProofNotes> notes_of(const Child& child, int status) const;

  const Program* program_;
  int seconds_;
  struct sigaction of_children_;  // of the program, for SIGCHLD
  std::vector<Child> children_;
};

}  // namespace weft::runtime::detail

#ifndef WEFT_COMPILED
#include <weft/runtime/proof/layout_processes_impl.hpp>
#endif
