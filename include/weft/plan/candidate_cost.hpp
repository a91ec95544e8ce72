// SPDX-License-Identifier: Apache-2.0
#pragma once
// The time and the memory of any layout by closed formulas, microseconds each. Their coefficients come from rehearsals of small
// pieces of the model, one and two layers without a pipeline, which many layouts share: both are linear in layers.
//
//   CandidateCosts costs(search, known_machine("h100"), [](World& world, const Piece& piece) { train(world, piece); });
//   const CandidateCost cost = costs.of(layout);   // cost.seconds, cost.memory

#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include <weft/core/inline.hpp>
#include <weft/mesh/world.hpp>
#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

/// What the program is asked to train for two steps: a layout of a model with so many layers and entries of its vocabulary.
struct Piece {
  Candidate layout;
  std::int64_t layers = 1, vocabulary = 1;
  std::int64_t global_batch() const { return std::int64_t(layout.dp) * layout.micro_batch * layout.micro_batches; }
};
using TrainPiece = std::function<void(World&, const Piece&)>;

struct CandidateCost {
  double seconds = 0;  ///< of a step
  double memory = 0;   ///< bytes of the fullest rank
};

namespace detail {

/// Of a layer, of what a model has once (the embedding, norms) and of all entries of its vocabulary.
struct Parts {
  double layer = 0, rest = 0, head = 0;
  double of(double layers, double rests, double heads) const { return layers * layer + rests * rest + heads * head; }
};

/// One micro-batch without messages of data ranks: seconds, and bytes.
struct BlockCosts {
  Parts forward, backward, optimizer;
  Parts context_bytes, context_calls;        ///< sums of gradients over cp, which are not in `backward`
  double saved = 0;                          ///< by a layer's forward for its backward
  double temporary = 0, temporary_head = 0;  ///< beside it: in a block, in the head
};

/// What a stage of ZeRO leaves on a rank, and what it sends.
struct ShardCosts {
  Parts whole, cut;  ///< bytes that are kept between steps: on each rank, and divided by the number of ranks
  Parts temporary;   ///< bytes of what is gathered, and of gradients that are on their way
  struct Traffic {
    Parts bytes;  ///< of all micro-batches if it is `each` time, else of a step
    Parts calls;
    double each = 0;  ///< 1: in each micro-batch, 0: once a step
  };
  /// By phase (forward, backward, after the pipeline), axis (dp, edp) and operation (gather, scatter, sum).
  std::array<std::array<std::array<Traffic, 3>, 2>, 3> traffic;
};

}  // namespace detail

/// Rehearses pieces when a layout first needs them, and keeps what they tell.
class CandidateCosts {
 public:
  CandidateCosts(const Search& search, const Machine& machine, TrainPiece train);

  /// Throws as the program does.
  CandidateCost of(const Candidate& layout);
  /// Whether of() needs no rehearsal.
  bool knows(const Candidate& layout) const;
  std::size_t rehearsals() const { return rehearsals_; }

 private:
  using Key = std::array<std::int32_t, 8>;
  struct Read {
    double forward = 0, backward = 0, optimizer = 0, kept = 0, peak = 0, context_bytes = 0, context_calls = 0;
    std::array<std::array<std::array<std::array<double, 2>, 3>, 2>, 3> traffic = {};  // bytes, calls
  };
  static Key block_key(const Candidate& layout, int micro_batch);
  static Key shard_key(const Candidate& layout);
  std::array<int, 2> neighbours(const Candidate& layout) const;
  Read read(const Candidate& layout, std::int64_t layers, std::int64_t vocabulary);
  /// Of figures with `layers`, one layer more, and with the whole vocabulary.
  detail::Parts parts(double fewer, double more, double with_head, int layers) const;
  detail::BlockCosts block(const Candidate& layout);
  const detail::BlockCosts& block_of(const Candidate& layout, int micro_batch);
  const detail::ShardCosts& shard(const Candidate& layout);

  Search search_;
  Machine machine_;
  TrainPiece train_;
  std::int64_t few_ = 1;  // entries of a vocabulary that costs little
  std::map<Key, detail::BlockCosts> blocks_;
  std::map<Key, detail::ShardCosts> shards_;
  std::size_t rehearsals_ = 0;
};

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/candidate_cost_impl.hpp>
#endif
