// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of a layout: a decision tree's answer first, then all legal layouts by formulas, and the best of these rehearsed
// whole, which decides.
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

namespace weft::plan {

/// How a program names a layout.
struct LayoutNames {
  std::string type;     ///< of C++
  std::string command;  ///< that runs it
};

/// What a program gives, and how long it waits.
struct ChooseOptions {
  TrainPiece train;                                         ///< two steps of the model
  std::function<LayoutNames(const Candidate&)> names = {};  ///< for reports
  double limit_s = 8;                                       ///< of the whole search
  std::size_t listed = 10;                                  ///< layouts that are returned
};

/// A layout that was rehearsed whole.
struct RankedLayout {
  Candidate layout;
  Estimate step;
  double memory = 0;       ///< bytes of the fullest rank, at most
  CandidateCost formulas;  ///< that brought it here
  LayoutNames names;
  std::string why;  ///< beside the tree's answer, or beside the next one
};

struct Chosen {
  Search search;
  std::string machine;
  std::string reason;                                 ///< of the tree's answer
  std::optional<RankedLayout> tree;                   ///< nothing if its answer does not fit when it is rehearsed
  std::vector<RankedLayout> best;                     ///< the fastest first
  std::size_t legal = 0, fitting = 0, rehearsed = 0;  ///< layouts; fitting: by the formulas
  bool complete = true;                               ///< false: time was up before all that promised something was looked at
  double seconds = 0;                                 ///< that the search took
};

/// Searches. Throws UsageError for sizes below 1, LayoutError if no layout is legal, MemoryError if none fits (it says how much
/// the smallest needs).
Chosen choose(const Search& search, const Machine& machine, const ChooseOptions& options);

namespace detail {

/// A branch of the decision tree that a layout is on: the lowest that has a layout which fits is its answer.
enum class Branch : std::uint8_t { one_rank, data, sharded, tensor, pipeline, context, count };
Branch branch_of(const Candidate& layout);
/// Whether the tree may answer with it: other choices of a branch are left to the search.
bool of_tree(const Search& search, const Candidate& layout);
std::string reason_of(const Search& search, const Candidate& layout, double memory);

/// The step of a whole layout: all stages, of a long step a part of its micro-batches, from which the rest follows.
Estimate whole_step(const Candidate& layout, const Search& search, const Machine& machine, const TrainPiece& train);
/// Bytes of the fullest rank, at most.
double whole_memory(const Candidate& layout, const Search& search, const Machine& machine, const TrainPiece& train);
/// Passes of a layer that whole_step and whole_memory rehearse.
double passes_of(const Candidate& layout, const Search& search);

}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/choose_impl.hpp>
#endif
