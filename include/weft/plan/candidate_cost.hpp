// SPDX-License-Identifier: Apache-2.0
#pragma once
// Closed formulas for the time and the memory of any layout, microseconds per evaluation. Rehearsals of small pieces of the model
// give the coefficients (plan/rehearsed_costs.hpp): both figures are linear in layers, and many layouts share a piece.
//
//   CandidateCosts costs(search, known_machine("h100"), [](World& world, const Piece& piece) { train(world, piece); });
//   const CandidateCost cost = costs.of(layout);   // cost.seconds, cost.memory

#include <cstddef>

#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/piece.hpp>
#include <weft/plan/rehearsed_costs.hpp>

namespace weft::plan {

struct CandidateCost {
  double seconds = 0;  ///< per step
  double memory = 0;   ///< bytes of the fullest rank
};

/// Costs of layouts by formulas, whose coefficients are rehearsed when a layout first needs them.
class CandidateCosts {
 public:
  CandidateCosts(const Search& search, const Machine& machine, TrainPiece train);

  /// Seconds per step. This and the next two throw whatever running this layout would throw.
  double seconds(const Candidate& layout);
  /// Bytes of the fullest rank.
  double memory(const Candidate& layout);
  CandidateCost of(const Candidate& layout);
  /// Bytes of host memory that the fullest rank's activations take.
  double host_memory(const Candidate& layout);
  /// True if the costs of `layout` need no further rehearsal.
  bool knows(const Candidate& layout) const { return rehearsed_.knows(layout); }
  std::size_t rehearsals() const { return rehearsed_.count(); }

 private:
  /// The first stage has the embedding, the last stage the head. With a tied table both have it.
  struct TableShares {
    double first, last;  // fraction of the vocabulary's cost
  };
  TableShares table_shares(const Candidate& layout) const;
  /// The layers of the rank with the front, of the rank with the back, and of the rank with most layers.
  struct RankLayers {
    double first, last, most;
  };
  RankLayers rank_layers(const Candidate& layout) const;
  /// Copies of activations that no computation hides, in one pipeline stage and micro-batch.
  struct HostWaits {
    double waits = 0;  // seconds of a stage without the head, whose first fetch and last put have nothing beside them
    double after = 0;  // seconds of the forward that pass after its output has been sent
  };
  HostWaits host_waits(const Candidate& layout);
  double hidden_bytes(const Candidate& layout) const;  // bytes sent between stages per micro-batch

  Search search_;
  Machine machine_;
  detail::RehearsedCosts rehearsed_;
};

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/candidate_cost_impl.hpp>
#endif
