// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rehearsal: a program as one rank of many, on this machine alone, without peers, memory or arithmetic. `run` rehearses the
// program if it is asked to, and then prints the table of its notes; a header-only program includes this header for that.
//
//   WEFT_REHEARSE=2048 ./program                        // all distinct ranks of 2,048
//   WEFT_REHEARSE=2048:17 ./program                     // rank 17; 2048:17:early for the least memory
//   WEFT_REHEARSE=2048 WEFT_REHEARSE_STEPS=3 ./program  // the program ends after three steps
//   Rehearsal notes = weft::rehearse({.rank = 17, .ranks = 2048}, [](World& world) { ... });

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/rehearsal_report.hpp>
#include <weft/runtime/rehearser.hpp>

namespace weft::runtime {

/// The rank to rehearse. A rehearsal of all distinct ranks does not read `rank`, and only that one reads `both`.
struct RehearsedRank {
  int rank = 0, ranks = 1;
  /// Buffers of messages live as short as they can, instead of as long as they can. The real peak is between these two peaks
  /// (Rehearsal::early).
  bool early = false;
  bool both = false;       ///< rehearse each rank a second time for the other peak (RehearsedStage::least_peak)
  int threads = 1;         ///< of its kernels; attention has one workspace per thread
  int ranks_per_node = 0;  ///< determines which axes leave a node (Rehearsal::nodes_of); 0: unknown
  /// Also records the order of the last step's kernels, messages and actions (Rehearsal::trace).
  bool trace = false;
  /// The program ends after this number of optimizer steps; 0: it ends by itself (Rehearsal::wanted_steps).
  int steps = 0;
  /// Load of a mixture's busiest expert, relative to the mean; at least 1 (Rehearsal::expert_skew).
  double expert_skew = 1;
  const weft::detail::ProofLayout* layout = nullptr;  ///< in place of the program's degrees (Rehearsal::layout)
};

/// Runs `f(world)` as that rank and returns its notes. Kokkos must be running. Throws whatever f throws. Throws UsageError for a
/// rank out of range, a skew below 1, a program that trains more than Rehearsal::most_steps times, or a Kokkos that computes on
/// GPUs.
Rehearsal rehearse(const RehearsedRank& rank, const std::function<void(World&)>& f);

/// A rehearsal of all distinct ranks.
using RehearsedStages = RehearsedRank;

/// Runs `f(world)` as every distinct rank, one after the other. The distinct ranks are the stages of the pipeline (axis pp of the
/// program's meshes), each as its first rank along all other axes; without a pipeline, rank 0. Along domain axes of three
/// ranks or more it is the second rank, which has neighbours on both sides. If an optimizer updates whole
/// matrices, each stage is followed by its rank that needs most memory for them (Rehearsal::fullest). Throws as rehearse does.
std::vector<RehearsedStage> rehearse_stages(const RehearsedStages& of, const std::function<void(World&)>& f);

namespace detail {

/// An estimate of a step's time, or the result of a search of layouts, as a text table and as JSON.
struct EstimateTexts {
  std::string table, json;
};
/// Estimates rehearsed stages on the machine of that name; null unless the program includes weft/plan/estimate.hpp.
inline EstimateTexts (*estimate_for_people)(const std::vector<RehearsedStage>& stages, std::string_view machine) = nullptr;
/// Throws UsageError if there is no machine of that name; null as above.
inline void (*require_machine)(std::string_view machine) = nullptr;
/// The program's layouts on the machine of that name that fit into `memory` bytes (0: any), of which the table has `listed`; null
/// unless the program includes weft/plan/layouts.hpp.
inline EstimateTexts (*layouts_for_people)(const RehearsedStages& of, std::string_view machine, double memory, std::size_t listed,
                                           const std::function<void(World&)>& f) = nullptr;

/// Parses "N", "N:rank" or "N:rank:early"; the rank is -1 for all distinct ranks. `name` is the option's name in errors. Throws
/// UsageError.
RehearsedRank rehearsed_rank_of(std::string_view name, std::string_view text);
/// The settings of a rehearsal in the environment: WEFT_REHEARSE_STEPS, _EXPERT_SKEW, _MEMORY, _LAYOUTS and WEFT_RANKS_PER_NODE.
struct RehearsalVariables {
  int steps = 0;
  double expert_skew = 1, memory = 0;  ///< bytes; 0: unset
  int ranks_per_node = 0;
  int layouts = 0;  ///< layouts that a search lists; 0: no search, the program's layout is rehearsed
};

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
