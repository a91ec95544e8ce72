// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a parameter's gradient during a step: the buffer to which layers add, whether anything was added, and the axes on
// which it is still unreduced, a term of a sum that the axis' wrapper has to compute.
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
  unsigned unreduced = 0, whole = 0, loose = 0;
};

class GradientState {
 public:
  // ---- buffers

  /// The part of the gradient that this rank keeps for the optimizer; null before the first step.
  const Buffer& buffer() const { return buffer_; }
  void set_buffer(Buffer buffer) { buffer_ = std::move(buffer); }
  Buffer exchange_buffer(Buffer buffer) { return std::exchange(buffer_, std::move(buffer)); }
  /// From now on layers add to a separate buffer, not to the one that the rank keeps.
  void separate() { separate_ = true; }
  /// The whole local gradient, to which layers add; null until it is allocated.
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
    touched_ = expected_ = ignored_ = unlooked_ = false;
  }
  /// As begin_step, and drops unreduced gradients of an earlier step (a layer alone, without wrappers).
  void discard() {
    fresh_ = true;
    unreduced_ = 0;
  }
  /// The parameter is frozen: it has no gradient, and no memory for one.
  void drop() {
    buffer_ = layer_ = nullptr;
    nodes_.clear();
    terms_.clear();
    unreduced_ = 0;
    fresh_ = true;
    touched_ = false;
  }
  /// The next gradient overwrites the buffer: its contents were summed or moved elsewhere.
  void renew() { fresh_ = true; }
  /// The buffer holds a sum, or zeros.
  void fill() { fresh_ = false; }

  /// Marks a layer's addition: `whole` are the axes on which it is the same on every rank, `unreduced` those on which it is a
  /// term of a sum. A gradient can be whole from one use and a term from another (a gain inside a parallel region and outside
  /// it); its whole part then counts as the term of the axis' first rank. `later` are the axes on which this rank is not the
  /// first.
  struct Addition {
    bool elsewhere;   ///< the addition is another rank's term: nothing is added here
    bool zero_first;  ///< the buffer holds another rank's term: it is set to zero first
  };
  Addition add(unsigned whole, unsigned unreduced, unsigned sharded, unsigned later);
  /// A kernel opened the gradient; `look` records that it has checked whether its addition is the first one.
  void open() {
    ignored_ = ignored_ || unlooked_;
    unlooked_ = true;
  }
  void look() { unlooked_ = false; }
  /// Whether a kernel has not looked: it always overwrites, or always adds.
  bool ignored() const { return ignored_ || unlooked_; }
  /// A layer whose backward has run asked for the values, so it is expected to have added a gradient.
  void expect() { expected_ = true; }
  bool expected() const { return expected_; }

  /// Whether the marked addition is the first one and overwrites the buffer.
  bool take_fresh() { return std::exchange(fresh_, false); }
  /// The buffer was filled with zeros.
  void fill_zero() {
    fresh_ = false;
    whole_ = loose_ = 0;
  }
  /// Whether some addition is the same on every rank of these axes.
  bool whole(unsigned axes) const { return !fresh_ && (whole_ & axes) != 0; }

  // ---- the sums over axes

  /// The bits of the axes over which the gradient is still unreduced.
  unsigned unreduced() const { return unreduced_; }
  template <Axis A>
  bool unreduced(A) const {
    return (unreduced_ & axis_bit<A>) != 0;
  }
  void mark_unreduced(unsigned axes) { unreduced_ |= axes; }
  /// Whether a layer added a term of the sum over this axis that is not made of fixed terms (tensor/fixed_terms.hpp).
  template <Axis A>
  bool loose(A) const {
    return (loose_ & axis_bit<A>) != 0;
  }
  /// The addition just marked, the first one, is made of fixed terms over these axes.
  void mark_fixed_terms(unsigned axes) { loose_ &= ~axes; }
  /// Whether the gradient is unreduced over this axis. The caller reduces it now: from here on it counts as reduced.
  template <Axis A>
  bool take_unreduced(A) {
    return (std::exchange(unreduced_, unreduced_ & ~axis_bit<A>) & axis_bit<A>) != 0;
  }
  /// The sum over data ranks, a gradient's last, has begun.
  void take_unreduced() { unreduced_ = 0; }
  /// Passes the unreduced axes to another state, to which the gradient was added.
  unsigned hand_on_unreduced() { return std::exchange(unreduced_, 0u); }

  // ---- separate terms, one for each micro-batch (GradientAccumulator::separates_terms)

  /// The gradient of the next micro-batch is added in `buffer`.
  void begin_term(Buffer buffer) {
    set_layer_buffer(std::move(buffer));
    fresh_ = true;
  }
  void resume_term(GradientTerm term) {
    set_layer_buffer(std::move(term.sum));
    fresh_ = false;
    unreduced_ = term.unreduced;
    whole_ = term.whole;
    loose_ = term.loose;
  }
  /// Puts the term aside, to be resumed later; nothing if nothing was added. `outside` is the buffer from here on.
  std::optional<GradientTerm> leave_term(Buffer outside);
  /// The complete terms of the micro-batch: this data rank's, after those of others (experts); none if nothing was added.
  std::vector<Buffer> end_term(Buffer outside);
  /// The sum so far is the gradient of one data rank's micro-batch; the next rank's is added in `buffer`.
  void next_term(Buffer buffer) {
    terms_.push_back(exchange_layer_buffer(std::move(buffer)));
    fresh_ = true;
  }
  /// Further sums of micro-batches that may not be added yet: the nodes of the reduction tree after the first.
  const std::vector<Buffer>& nodes() const { return nodes_; }
  void add_node(Buffer sum) { nodes_.push_back(std::move(sum)); }
  void clear_nodes() { nodes_.clear(); }

 private:
  Buffer buffer_, layer_;
  std::vector<Buffer> nodes_, terms_;
  unsigned unreduced_ = 0;
  unsigned whole_ = 0;  // axis bits on which something that was added is the same on every rank
  unsigned loose_ = 0;  // axis bits of sums without fixed terms
  bool separate_ = false, fresh_ = true, touched_ = true, expected_ = false, ignored_ = false, unlooked_ = false;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/gradient_state_impl.hpp>
#endif
