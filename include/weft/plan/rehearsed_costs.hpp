// SPDX-License-Identifier: Apache-2.0
#pragma once
// The coefficients of a layout's cost, from rehearsals of small pieces of the model; the formulas are in plan/candidate_cost.hpp.
//
//   detail::RehearsedCosts costs(search, machine, train);
//   const double forward_s = costs.block(layout).forward.of(layers, 1, 1);

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/piece.hpp>

namespace weft::plan::detail {

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

/// Rehearses a piece when a layout first needs it, and caches the result.
class RehearsedCosts {
 public:
  RehearsedCosts(const Search& search, const Machine& machine, TrainPiece train)
      : search_(search), machine_(machine), train_(std::move(train)) {}

  /// Throws whatever a run of the pieces would throw, as the other costs do.
  BlockCosts block(const Candidate& layout);
  const FlightCosts& flight(const Candidate& layout);
  const ShardCosts& shard(const Candidate& layout);
  const CopyCosts& copies(const Candidate& layout);
  const OffloadCosts& offload(const Candidate& layout);
  /// True if the costs of `layout` need no further rehearsal.
  bool knows(const Candidate& layout) const;
  /// The rehearsals so far.
  std::size_t count() const { return count_; }

 private:
  using Key = std::array<std::int32_t, 10>;
  using Pieces = std::array<PieceCosts, 3>;
  static constexpr int gathered_layers = 3;  // ZeRO-3 gathers two layers at a time, so memory is linear from the third layer on
  static constexpr int few_sharers = 2, many_sharers = 16;
  static Key block_key(const Candidate& layout, int micro_batch);
  static Key shard_key(const Candidate& layout);
  static Key flight_key(const Candidate& layout);
  std::array<int, 2> neighbours(const Candidate& layout) const;
  PieceCosts read(const Candidate& layout, std::int64_t layers, std::int64_t vocabulary);
  /// Pieces of `layers` layers, of one layer more, and of `layers` with the whole vocabulary.
  Pieces read_all(const Candidate& layout, int layers);
  /// Splits the figures of these three pieces into parts.
  Parts parts(double fewer, double more, double with_head, int layers) const;
  template <class Figure>
  Parts parts_of(const Pieces& pieces, const Figure& figure) const {
    return parts(figure(pieces[0]), figure(pieces[1]), figure(pieces[2]), gathered_layers);
  }
  const BlockCosts& block_of(const Candidate& layout, int micro_batch);
  /// The layout of pieces that measure sharding: no pipeline, two micro-batches of one sequence, the fewest ranks.
  static Candidate shard_piece(const Candidate& layout);

  Search search_;
  Machine machine_;
  TrainPiece train_;
  std::int64_t few_ = 1;  // a small vocabulary for pieces that need none
  std::map<Key, BlockCosts> blocks_;
  std::map<Key, FlightCosts> flights_;
  std::map<Key, ShardCosts> shards_;
  std::map<Key, CopyCosts> copies_;
  std::map<Key, OffloadCosts> offloads_;
  std::size_t count_ = 0;
};

}  // namespace weft::plan::detail

#ifndef WEFT_COMPILED
#include <weft/plan/rehearsed_costs_impl.hpp>
#endif
