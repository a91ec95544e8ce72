// SPDX-License-Identifier: Apache-2.0
#pragma once
// A proof: the program in every layout of a few ranks, compared with itself on one rank. Ranks are threads, each layout is one
// child process, and the tensors of two training steps are compared: batches, losses, gradients before and after the sums over
// ranks, and updated parameters. `run` proves the program if WEFT_PROVE is set; a header-only program includes this header for
// that.
//
//   WEFT_PROVE=8 ./program                                          // all layouts of up to 8 ranks
//   WEFT_PROVE=8 WEFT_PROVE_CERTIFICATE=proof.json ./program        // and the result as JSON
//   const ProofReport report = runtime::prove({.ranks = 4}, [](World& world) { return train(world), 0; });

#include <functional>

#include <weft/mesh/world.hpp>
#include <weft/runtime/proof/report.hpp>
#include <weft/runtime/prover.hpp>

namespace weft::runtime {

/// Options of a proof.
struct ProofOptions {
  int ranks = 8;            ///< of the largest layouts
  int steps = 2;            ///< optimizer steps that are compared
  int seconds = 600;        ///< layouts that have not begun by then are left out
  int layout_seconds = 60;  ///< a layout that takes longer hangs
  int processes = 0;        ///< layouts at a time; 0: the number of cores
};

/// Proves `f`. Kokkos may run or not. Throws UsageError for a program that cannot be proven: one rank fails, no training step, no
/// mesh, other values in a second run. Also for options out of their range. Only for programs that compute on the host. `f` runs
/// in child processes, so that its changes of variables and its lines on standard output are lost.
ProofReport prove(const ProofOptions& options, const std::function<int(World&)>& f);

}  // namespace weft::runtime

#ifndef WEFT_COMPILED
#include <weft/runtime/prove_impl.hpp>
#endif
