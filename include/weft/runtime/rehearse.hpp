// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rehearsal: a program as one rank of many, on this machine alone, without peers, memory or arithmetic. `run` rehearses the
// program if it is asked to, and then prints the table of what it noted; a header-only program includes this header for that.
//
//   WEFT_REHEARSE=2048 ./program                        // of 2,048 ranks, those that differ
//   WEFT_REHEARSE=2048:17 ./program                     // rank 17; 2048:17:early for the least memory
//   WEFT_REHEARSE=2048 WEFT_REHEARSE_STEPS=3 ./program  // the program ends after three steps
//   Rehearsal notes = weft::rehearse({.rank = 17, .ranks = 2048}, [](World& world) { ... });

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/rehearsal_report.hpp>
#include <weft/runtime/rehearser.hpp>

namespace weft::runtime {

/// The rank that is rehearsed.
struct RehearsedRank {
  int rank = 0, ranks = 1;
  /// Messages come so that their buffers live as short as they can, instead of as long: the two peaks between which the real one
  /// is (Rehearsal::early).
  bool early = false;
  int threads = 1;         ///< of its kernels: attention has a workspace for each
  int ranks_per_node = 0;  ///< tells which axes leave a node (Rehearsal::nodes_of); 0: not known
  /// Also keeps the order of the last step's kernels, messages and actions: Rehearsal::trace.
  bool trace = false;
  /// The program ends after so many steps of its optimizers; 0: by itself (Rehearsal::wanted_steps).
  int steps = 0;
  /// How many times the mean load the busiest expert of a mixture has, at least 1 (Rehearsal::expert_skew).
  double expert_skew = 1;
};

/// Runs `f(world)` as that rank and returns what it would do. Kokkos must be running. Throws what f throws, and UsageError for a
/// rank out of range, a skew below 1, a program that trains more than Rehearsal::most_steps times, or a Kokkos that computes on
/// GPUs.
Rehearsal rehearse(const RehearsedRank& rank, const std::function<void(World&)>& f);

/// What is rehearsed of all ranks.
struct RehearsedStages {
  int ranks = 1;
  bool early = false;
  bool both = false;  ///< the other peak, too, for which each rank is rehearsed again (RehearsedStage::least_peak)
  int threads = 1, ranks_per_node = 0;
  bool trace = false;  ///< RehearsedRank::trace
  int steps = 0;       ///< RehearsedRank::steps
  double expert_skew = 1;
};

/// Runs `f(world)` as every rank that differs, one after the other: the stages of the pipeline (the axis pp of the program's
/// meshes), each as its rank that is the first along all other axes; without a pipeline, rank 0. After a stage comes the rank of
/// it that needs the most for whole matrices, if its optimizer has such (Rehearsal::fullest). Throws as rehearse does.
std::vector<RehearsedStage> rehearse_stages(const RehearsedStages& of, const std::function<void(World&)>& f);

namespace detail {

/// An estimate of a step's time, for people and as JSON.
struct EstimateTexts {
  std::string table, json;
};
/// That of rehearsed stages on the machine of that name; null in a program that has not included weft/plan/estimate.hpp.
inline EstimateTexts (*estimate_for_people)(const std::vector<RehearsedStage>& stages, std::string_view machine) = nullptr;
/// Throws UsageError if there is no machine of that name; null where that is.
inline void (*require_machine)(std::string_view machine) = nullptr;

/// The rank that "N", "N:rank" or "N:rank:early" names, -1 for all that differ; `name` is that of the option, for errors. Throws
/// UsageError.
RehearsedRank rehearsed_rank_of(std::string_view name, std::string_view text);
/// What the program's options (RunOptions::rehearse), its arguments (--rehearse N[:rank]) or WEFT_REHEARSE ask for. Throws
/// UsageError for that, and for variables of a rehearsal that cannot be, also where nothing is rehearsed.
std::optional<RehearsedRank> rehearsed_rank(const RunOptions& options);
/// The numbers of a rehearsal from the environment: WEFT_REHEARSE_STEPS, _EXPERT_SKEW, _MEMORY and WEFT_RANKS_PER_NODE.
struct RehearsalVariables {
  int steps = 0;
  double expert_skew = 1, memory = 0;  ///< bytes; 0: not said
  int ranks_per_node = 0;
};
/// Throws UsageError for numbers that cannot be.
RehearsalVariables rehearsal_variables();
/// The machine for which the step's time is estimated, from the program's arguments (--machine) or WEFT_MACHINE; empty if neither
/// says it.
std::string machine_name(const RunOptions& options);
/// Rehearses the program as that rank, or as all that differ, prints the table and writes the file that WEFT_REHEARSE_JSON names;
/// "-": it prints JSON in place of the table.
/// What the program prints is printed once. Returns the program's exit code. Throws MemoryError if a rank needs more memory than
/// WEFT_REHEARSE_MEMORY says.
int rehearse_program(RehearsedRank rank, const RunOptions& options, const std::function<int(World&)>& f);

}  // namespace detail

}  // namespace weft::runtime

namespace weft {
using runtime::rehearse;
using runtime::rehearse_stages;
using runtime::RehearsedRank;
using runtime::RehearsedStages;
}  // namespace weft

#ifndef WEFT_COMPILED
namespace weft::runtime::detail {
inline const bool rehearses = (rehearser = &rehearse_if_asked) != nullptr;
}
#endif

#ifndef WEFT_COMPILED
#include <weft/runtime/rehearse_impl.hpp>
#endif
