// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of a layout. A decision tree gives the first answer. Formulas then rank all legal layouts, and full rehearsals of
// the best ones decide.
//
//   const Chosen chosen = choose(search, known_machine("h100"), {.train = train, .names = names});
//   std::puts(table_of(chosen).c_str());           // chosen.best[0].layout, .step.seconds, .memory

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/plan/candidate.hpp>
#include <weft/plan/candidate_cost.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/piece.hpp>

namespace weft::plan {

/// The name of a layout in a program.
struct LayoutNames {
  std::string type;     ///< C++ type
  std::string command;  ///< shell command that runs the layout
};

/// The program's functions, and the limits of the search.
struct ChooseOptions {
  TrainPiece train;                                     ///< trains the model for two steps
  std::function<LayoutNames(const Piece&)> names = {};  ///< of a whole model, for reports
  double limit_s = 8;                                   ///< seconds for the whole search
  std::size_t listed = 10;                              ///< layouts that are returned
};

/// A layout that was rehearsed in full.
struct RankedLayout {
  Candidate layout;
  std::vector<std::size_t> stage_layers = {};  ///< the layers of each stage if numbers by cost are faster; else empty
  Estimate step;
  double memory = 0;       ///< upper bound of the fullest rank's bytes
  double host_memory = 0;  ///< bytes of host memory that the fullest rank's activations take
  CandidateCost formulas;  ///< estimate by formulas
  LayoutNames names;
  std::string why;  ///< comparison with the tree's answer, or with the next layout
};

/// The answer of a search for layouts, with its reason and the fastest of the others.
struct Chosen {
  Search search;
  std::string machine;
  std::string reason;                                 ///< why the tree chose its answer
  std::optional<RankedLayout> tree;                   ///< empty if the rehearsal shows that the tree's answer does not fit
  std::vector<RankedLayout> best;                     ///< the fastest first
  std::size_t legal = 0, fitting = 0, rehearsed = 0;  ///< counts of layouts; `fitting` by the formulas
  bool complete = true;                               ///< false: time ran out before every promising layout was rehearsed
  double seconds = 0;                                 ///< duration of the search
};

/// Searches. A layout fits if its ranks have room on their devices, and the activations of a node's ranks in
/// Machine::host_memory. Throws UsageError for sizes below 1, LayoutError if no layout is legal, MemoryError if none fits. The
/// MemoryError gives the smallest need.
Chosen choose(const Search& search, const Machine& machine, const ChooseOptions& options);

namespace detail {

/// Branches of the decision tree. The tree's answer is on the first branch that has a layout that fits.
enum class Branch : std::uint8_t { one_rank, data, sharded, tensor, pipeline, context, count };
Branch branch_of(const Candidate& layout);
/// True if the tree may choose this layout. Other layouts of the branch are left to the search.
bool of_tree(const Search& search, const Candidate& layout);
std::string reason_of(const Search& search, const Candidate& layout, double memory);

/// The step of a whole layout with all stages. A long step is extrapolated from fewer micro-batches.
Estimate whole_step(const Piece& whole, const Search& search, const Machine& machine, const TrainPiece& train);
/// Upper bound of the fullest rank's bytes on its device, and the bytes of host memory of its activations.
struct WholeMemory {
  double device = 0, host = 0;
};
WholeMemory whole_memory(const Piece& whole, const Search& search, const Machine& machine, const TrainPiece& train);
/// The layers of each stage by cost, from the times of a rehearsed step with equal numbers; empty if these are the same.
std::vector<std::size_t> stages_by_cost(const Candidate& layout, const Search& search, const Estimate& step);
/// Number of layer passes that whole_step and whole_memory rehearse.
double passes_of(const Candidate& layout, const Search& search);

}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/choose_impl.hpp>
#endif
