// SPDX-License-Identifier: Apache-2.0
#pragma once
// Closed formulas for the time and the memory of any layout, microseconds per evaluation. Rehearsals of small pieces of the model
// (one and two layers, no pipeline) give the coefficients: both figures are linear in layers, and many layouts share a piece.
//
//   CandidateCosts costs(search, known_machine("h100"), [](World& world, const Piece& piece) { train(world, piece); });
//   const CandidateCost cost = costs.of(layout);   // cost.seconds, cost.memory

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/piece.hpp>

namespace weft::plan {

struct CandidateCost {
  double seconds = 0;  ///< per step
  double memory = 0;   ///< bytes of the fullest rank
};

namespace detail {

/// A cost split into the part per layer, the part per model (embedding, norms), and the part of the whole vocabulary.
struct Parts {
  double layer = 0, rest = 0, head = 0;
  double of(double layers, double rests, double heads) const { return layers * layer + rests * rest + heads * head; }
  Parts times(double factor) const { return {factor * layer, factor * rest, factor * head}; }
  Parts less(const Parts& other) const { return {layer - other.layer, rest - other.rest, head - other.head}; }
};

/// Bytes that each rank holds whole, and bytes that the sharding ranks divide.
struct Shares {
  Parts whole, cut;
  double of(double layers, double rests, double heads, double sharers) const {
    return whole.of(layers, rests, heads) + cut.of(layers, rests, heads) / sharers;
  }
};

/// One micro-batch without the messages of data-parallel ranks: seconds, and bytes.
struct BlockCosts {
  Parts forward, backward, optimizer;
  Parts context_bytes, context_calls;        ///< all-reduces of gradients over cp, not included in `backward`
  double saved = 0;                          ///< bytes that a layer's forward saves for its backward
  double temporary = 0, temporary_head = 0;  ///< further bytes: in a block, in the head
  double host = 0;                           ///< bytes of a layer that are in host memory between its forward and its backward
};

/// Bytes of one in-flight sequence in a pipeline.
struct FlightCosts {
  double waiting = 0;  ///< per layer that has its input gradient and still lacks its weight gradient
  double ends = 0;     ///< in the first and last stage, per micro-batch after the first
};

/// Memory and messages of a ZeRO stage on one rank.
struct ShardCosts {
  Shares kept;       ///< between steps
  Shares temporary;  ///< gathered parameters, and gradients being reduced
  struct Traffic {
    Parts bytes;  ///< of all micro-batches if `each` is 1, otherwise per step
    Parts calls;
    double each = 0;  ///< 1: in each micro-batch, 0: once per step
  };
  ByMessage<Traffic> traffic;
};

/// All-reduces over the copies of the shards, once per step: bytes of all shards, and calls. By axis (dp, edp).
struct CopyCosts {
  std::array<Parts, 2> bytes, calls;
};

/// Bytes that offload removes from the devices of one sharding group, and bytes that it moves per step.
struct OffloadCosts {
  Parts gone, moved;
};

}  // namespace detail

/// Rehearses a piece when a layout first needs it, and caches the result.
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
  bool knows(const Candidate& layout) const;
  std::size_t rehearsals() const { return rehearsals_; }

 private:
  using Key = std::array<std::int32_t, 10>;
  using Pieces = std::array<detail::PieceCosts, 3>;
  static constexpr int gathered_layers = 3;  // ZeRO-3 gathers two layers at a time, so memory is linear from the third layer on
  static constexpr int few_sharers = 2, many_sharers = 16;
  static Key block_key(const Candidate& layout, int micro_batch);
  static Key shard_key(const Candidate& layout);
  static Key flight_key(const Candidate& layout);
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
  std::array<int, 2> neighbours(const Candidate& layout) const;
  detail::PieceCosts read(const Candidate& layout, std::int64_t layers, std::int64_t vocabulary);
  /// Pieces of `layers` layers, of one layer more, and of `layers` with the whole vocabulary.
  Pieces read_all(const Candidate& layout, int layers);
  /// Splits the figures of these three pieces into parts.
  detail::Parts parts(double fewer, double more, double with_head, int layers) const;
  template <class Figure>
  detail::Parts parts_of(const Pieces& pieces, const Figure& figure) const {
    return parts(figure(pieces[0]), figure(pieces[1]), figure(pieces[2]), gathered_layers);
  }
  detail::BlockCosts block(const Candidate& layout);
  const detail::BlockCosts& block_of(const Candidate& layout, int micro_batch);
  const detail::FlightCosts& flight(const Candidate& layout);
  /// The layout of pieces that measure sharding: no pipeline, two micro-batches of one sequence, the fewest ranks.
  static Candidate shard_piece(const Candidate& layout);
  const detail::ShardCosts& shard(const Candidate& layout);
  const detail::CopyCosts& copies(const Candidate& layout);
  const detail::OffloadCosts& offload(const Candidate& layout);

  Search search_;
  Machine machine_;
  TrainPiece train_;
  std::int64_t few_ = 1;  // a small vocabulary for pieces that need none
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
