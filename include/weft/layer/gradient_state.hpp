// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a parameter's gradient during a step: where layers add to it, whether anything was added, and over which axes it
// is still unreduced, a term of a sum that the axis' wrapper is to make.
//
//   if (state.gradients().take_unreduced(tp{})) comm.all_reduce(...);

#include <optional>
#include <utility>
#include <vector>

#include <weft/device/arena.hpp>
#include <weft/mesh/axis.hpp>

namespace weft::detail {

/// The gradient of one micro-batch, put aside before its backward is complete (GradientAccumulator::separates_terms).
struct GradientTerm {
  Buffer sum;
  unsigned unreduced = 0, whole = 0;
};

class GradientState {
 public:
  // ---- buffers

  /// What this rank keeps of the gradient, for the optimizer; null before any step.
  const Buffer& buffer() const { return buffer_; }
  void set_buffer(Buffer buffer) { buffer_ = std::move(buffer); }
  Buffer exchange_buffer(Buffer buffer) { return std::exchange(buffer_, std::move(buffer)); }
  /// Layers add to a buffer of their own from now on, which is not what the rank keeps.
  void separate() { separate_ = true; }
  /// The whole local gradient, to which layers add; null until there is room for it.
  const Buffer& layer_buffer() const { return separate_ ? layer_ : buffer_; }
  Buffer exchange_layer_buffer(Buffer buffer) { return std::exchange(separate_ ? layer_ : buffer_, std::move(buffer)); }
  void set_layer_buffer(Buffer buffer) { (separate_ ? layer_ : buffer_) = std::move(buffer); }

  // ---- additions of layers

  /// Nothing was added since the step (or the term) began: the next gradient overwrites.
  bool fresh() const { return fresh_; }
  /// Some micro-batch of some rank added to the gradient in this step.
  bool touched() const { return touched_; }
  void set_touched(bool touched) { touched_ = touched; }

  /// A step begins: gradients start anew.
  void begin_step() {
    fresh_ = true;
    touched_ = false;
  }
  /// As begin_step, whatever an earlier one left unreduced (a layer alone, without wrappers).
  void discard() {
    fresh_ = true;
    unreduced_ = 0;
  }
  /// The buffer is to be overwritten, for what was in it has left (it is summed, or it moved elsewhere).
  void renew() { fresh_ = true; }
  /// The buffer holds a sum, or zeros.
  void fill() { fresh_ = false; }

  /// A layer's addition, marked: `whole` are the axes on which it is the same on every rank, `unreduced` those on which it is a
  /// term of a sum. A gradient that is whole from one use and a term from another (a gain inside of a parallel region and outside
  /// of it) counts its whole part as the term of the axis' first rank; `later` are the axes on which this rank is another one.
  struct Addition {
    bool elsewhere;   ///< another rank's term: nothing is added here
    bool zero_first;  ///< what the buffer holds is another rank's term: zeros take its place
  };
  Addition add(unsigned whole, unsigned unreduced, unsigned sharded, unsigned later);
  /// Whether the addition that was marked is the first one, and overwrites.
  bool take_fresh() { return std::exchange(fresh_, false); }
  /// Zeros are in the buffer.
  void fill_zero() {
    fresh_ = false;
    whole_ = 0;
  }
  /// Whether something that was added is the same on every rank of these axes.
  bool whole(unsigned axes) const { return !fresh_ && (whole_ & axes) != 0; }

  // ---- the sums over axes

  /// Axis bits over which the gradient is still to be summed.
  unsigned unreduced() const { return unreduced_; }
  template <Axis A>
  bool unreduced(A) const {
    return (unreduced_ & axis_bit<A>) != 0;
  }
  void mark_unreduced(unsigned axes) { unreduced_ |= axes; }
  /// Whether the gradient was to be summed over this axis. The caller does it now: the gradient counts as reduced from here on.
  template <Axis A>
  bool take_unreduced(A) {
    return (std::exchange(unreduced_, unreduced_ & ~axis_bit<A>) & axis_bit<A>) != 0;
  }
  /// The data ranks' sum is begun: the last one of a gradient.
  void take_unreduced() { unreduced_ = 0; }
  /// The axes, for another state that the gradient was added to.
  unsigned hand_on_unreduced() { return std::exchange(unreduced_, 0u); }

  // ---- separate terms, one for each micro-batch (GradientAccumulator::separates_terms)

  /// The next micro-batch's gradient goes to `buffer`.
  void begin_term(Buffer buffer) {
    set_layer_buffer(std::move(buffer));
    fresh_ = true;
  }
  void resume_term(GradientTerm term) {
    set_layer_buffer(std::move(term.sum));
    fresh_ = false;
    unreduced_ = term.unreduced;
    whole_ = term.whole;
  }
  /// The term as it is, to be resumed later; nothing if nothing was added. `outside` is the buffer from here on.
  std::optional<GradientTerm> leave_term(Buffer outside);
  /// The terms of the micro-batch, complete: this data rank's, behind those of others (experts); none if nothing was added.
  std::vector<Buffer> end_term(Buffer outside);
  /// What was added so far is the gradient of one data rank's micro-batch; that of the next one's goes to `buffer`.
  void next_term(Buffer buffer) {
    terms_.push_back(exchange_layer_buffer(std::move(buffer)));
    fresh_ = true;
  }
  /// Further sums of micro-batches that may not be added here yet: the nodes of the reduction tree after the first.
  const std::vector<Buffer>& nodes() const { return nodes_; }
  void add_node(Buffer sum) { nodes_.push_back(std::move(sum)); }
  void clear_nodes() { nodes_.clear(); }

 private:
  Buffer buffer_, layer_;
  std::vector<Buffer> nodes_, terms_;
  unsigned unreduced_ = 0;
  unsigned whole_ = 0;  // axis bits on which something that was added is the same on every rank
  bool separate_ = false, fresh_ = true, touched_ = true;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/layer/gradient_state_impl.hpp>
#endif
