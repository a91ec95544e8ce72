// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rehearsal of a small piece of a model: its time without messages of data-parallel ranks, its memory, and these messages.
// The formulas of plan/candidate_cost.hpp take their coefficients from such pieces.
//
//   const PieceCosts one = piece_costs({.layout = layout, .layers = 1, .vocabulary = 512}, machine, train);

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <weft/mesh/world.hpp>
#include <weft/plan/candidate.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

/// A model for the program to train for two steps: a layout, and the numbers of layers and of vocabulary entries.
struct Piece {
  Candidate layout;
  std::int64_t layers = 1, vocabulary = 1;
  std::vector<std::size_t> stage_layers = {};  ///< PipelineOptions::layers; empty: equal numbers
  std::int64_t global_batch() const { return std::int64_t(layout.dp) * layout.micro_batch * layout.micro_batches; }
};
/// The program that trains a piece for two steps, for a rehearsal.
using TrainPiece = std::function<void(World&, const Piece&)>;

namespace detail {

/// Messages of data-parallel ranks: all-gather, reduce-scatter, all-reduce among sharding ranks, all-reduce over copies.
enum class DataMessage : std::uint8_t { gather, scatter, sum, sum_of_copies, count };
inline constexpr std::size_t data_messages = std::size_t(DataMessage::count);

/// A value by phase (forward, backward, after the pipeline), axis (dp, edp) and kind of message.
template <class T>
using ByMessage = std::array<std::array<std::array<T, data_messages>, 2>, 3>;

/// One rank's step: seconds without messages of data-parallel ranks, and bytes.
struct PieceCosts {
  double forward = 0, backward = 0, optimizer = 0;
  double kept = 0, peak = 0;
  double offloaded = 0;                            ///< bytes of state moved to host memory and back
  double activations = 0;                          ///< the same of activations
  double context_bytes = 0, context_calls = 0;     ///< all-reduces of gradients over cp, not included in `backward`
  ByMessage<std::array<double, 2>> messages = {};  ///< bytes and calls
};
PieceCosts piece_costs(const Piece& piece, const Machine& machine, const TrainPiece& train);
/// Upper bound of the bytes of the last rank in the piece's pipeline.
double piece_peak(const Piece& piece, const TrainPiece& train);

}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/piece_impl.hpp>
#endif
