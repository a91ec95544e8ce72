// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rehearsal of a small piece of a model: its time without messages of data ranks, its memory, and these messages, apart. The
// formulas of plan/candidate_cost.hpp have their coefficients from such pieces.
//
//   const PieceCosts one = piece_costs({.layout = layout, .layers = 1, .vocabulary = 512}, machine, train);

#include <array>
#include <cstdint>
#include <functional>

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

namespace detail {

/// What data ranks send: gathered, scattered, summed by those that share out, and summed over the copies of what is shared out.
enum class DataMessage : std::uint8_t { gather, scatter, sum, sum_of_copies, count };
inline constexpr std::size_t data_messages = std::size_t(DataMessage::count);

/// A value by phase (forward, backward, after the pipeline), axis (dp, edp) and kind of message.
template <class T>
using ByMessage = std::array<std::array<std::array<T, data_messages>, 2>, 3>;

/// Of one rank and step. Seconds without messages of data ranks, and bytes.
struct PieceCosts {
  double forward = 0, backward = 0, optimizer = 0;
  double kept = 0, peak = 0;
  double offloaded = 0;                            ///< to the host's memory and back
  double context_bytes = 0, context_calls = 0;     ///< sums of gradients over cp, which are not in `backward`
  ByMessage<std::array<double, 2>> messages = {};  ///< bytes and calls
};
PieceCosts piece_costs(const Piece& piece, const Machine& machine, const TrainPiece& train);
/// Bytes of the rank at the end of the piece's pipeline, at most.
double piece_peak(const Piece& piece, const TrainPiece& train);

}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/piece_impl.hpp>
#endif
