// SPDX-License-Identifier: Apache-2.0
#pragma once
// The time and the memory of any layout by closed formulas, microseconds each. Their coefficients come from rehearsals of small
// pieces of the model, one and two layers without a pipeline, which many layouts share: both are linear in layers.
//
//   CandidateCosts costs(search, known_machine("h100"), [](World& world, const Piece& piece) { train(world, piece); });
//   const CandidateCost cost = costs.of(layout);   // cost.seconds, cost.memory

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <weft/core/inline.hpp>
#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/piece.hpp>

namespace weft::plan {

struct CandidateCost {
  double seconds = 0;  ///< of a step
  double memory = 0;   ///< bytes of the fullest rank
};

namespace detail {

/// Of a layer, of what a model has once (the embedding, norms) and of all entries of its vocabulary.
struct Parts {
  double layer = 0, rest = 0, head = 0;
  double of(double layers, double rests, double heads) const { return layers * layer + rests * rest + heads * head; }
  Parts times(double factor) const { return {factor * layer, factor * rest, factor * head}; }
  Parts less(const Parts& other) const { return {layer - other.layer, rest - other.rest, head - other.head}; }
};

/// Bytes of which each rank has a part, and the ranks that share out the other part among them.
struct Shares {
  Parts whole, cut;
  double of(double layers, double rests, double heads, double sharers) const {
    return whole.of(layers, rests, heads) + cut.of(layers, rests, heads) / sharers;
  }
};

/// One micro-batch without messages of data ranks: seconds, and bytes.
struct BlockCosts {
  Parts forward, backward, optimizer;
  Parts context_bytes, context_calls;        ///< sums of gradients over cp, which are not in `backward`
  double saved = 0;                          ///< by a layer's forward for its backward
  double temporary = 0, temporary_head = 0;  ///< beside it: in a block, in the head
};

/// Bytes of one sequence's micro-batch that is in flight in a pipeline.
struct FlightCosts {
  double waiting = 0;  ///< in a layer whose input gradient is done and whose weight gradient is not
  double ends = 0;     ///< in the model's ends, of each micro-batch but the first
};

/// What a stage of ZeRO leaves on a rank, and what it sends.
struct ShardCosts {
  Shares kept;       ///< between steps
  Shares temporary;  ///< what is gathered, and gradients that are on their way
  struct Traffic {
    Parts bytes;  ///< of all micro-batches if it is `each` time, else of a step
    Parts calls;
    double each = 0;  ///< 1: in each micro-batch, 0: once a step
  };
  ByMessage<Traffic> traffic;
};

/// Sums over the copies of what is shared out, once a step: the bytes of all shards, and calls. By axis (dp, edp).
struct CopyCosts {
  std::array<Parts, 2> bytes, calls;
};

/// What offload takes off the devices of all ranks that share out, and moves in a step.
struct OffloadCosts {
  Parts gone, moved;
};

}  // namespace detail

/// Rehearses pieces when a layout first needs them, and keeps what they tell.
class CandidateCosts {
 public:
  CandidateCosts(const Search& search, const Machine& machine, TrainPiece train);

  /// Of a step. All these throw as the program does.
  double seconds(const Candidate& layout);
  /// Bytes of the fullest rank.
  double memory(const Candidate& layout);
  CandidateCost of(const Candidate& layout);
  /// Whether they need no rehearsal.
  bool knows(const Candidate& layout) const;
  std::size_t rehearsals() const { return rehearsals_; }

 private:
  using Key = std::array<std::int32_t, 8>;
  using Pieces = std::array<detail::PieceCosts, 3>;
  static constexpr int gathered_layers = 3;  // two layers are gathered at a time, so memory is linear from the third on
  static constexpr int few_sharers = 2, many_sharers = 16;
  static Key block_key(const Candidate& layout, int micro_batch);
  static Key shard_key(const Candidate& layout);
  static Key flight_key(const Candidate& layout);
  /// The first stage has the embedding, the last the head; both have the table if it is tied.
  struct TableShares {
    double first, last;  // of what the vocabulary takes
  };
  TableShares table_shares(const Candidate& layout) const;
  double hidden_bytes(const Candidate& layout) const;  // between stages, of a micro-batch
  std::array<int, 2> neighbours(const Candidate& layout) const;
  detail::PieceCosts read(const Candidate& layout, std::int64_t layers, std::int64_t vocabulary);
  /// Of pieces of `layers`, of one more, and with the whole vocabulary.
  Pieces read_all(const Candidate& layout, int layers);
  /// Of figures of such pieces.
  detail::Parts parts(double fewer, double more, double with_head, int layers) const;
  template <class Figure>
  detail::Parts parts_of(const Pieces& pieces, const Figure& figure) const {
    return parts(figure(pieces[0]), figure(pieces[1]), figure(pieces[2]), gathered_layers);
  }
  detail::BlockCosts block(const Candidate& layout);
  const detail::BlockCosts& block_of(const Candidate& layout, int micro_batch);
  const detail::FlightCosts& flight(const Candidate& layout);
  /// The layout of the pieces that tell of data ranks: no pipeline, two micro-batches of one sequence, the fewest ranks.
  static Candidate shard_piece(const Candidate& layout);
  const detail::ShardCosts& shard(const Candidate& layout);
  const detail::CopyCosts& copies(const Candidate& layout);
  const detail::OffloadCosts& offload(const Candidate& layout);

  Search search_;
  Machine machine_;
  TrainPiece train_;
  std::int64_t few_ = 1;  // entries of a vocabulary that costs little
  std::map<Key, detail::BlockCosts> blocks_;
  std::map<Key, detail::FlightCosts> flights_;
  std::map<Key, detail::ShardCosts> shards_;
  std::map<Key, detail::CopyCosts> copies_;
  std::map<Key, detail::OffloadCosts> offloads_;
  std::size_t rehearsals_ = 0;
};

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/candidate_cost_impl.hpp>
#endif
