// SPDX-License-Identifier: Apache-2.0
#pragma once
// The calls of a Module's children while the Module, which is a whole model, runs as one unit. A rank that keeps pieces of the
// parameters must gather those of a child when it is called and may release them when it returns, and can reduce their gradients
// when the child's backward has ended. Which parameters a child uses is found when its layers ask for them, so a child may be
// shared, kept in a container or copied by the forward.
//
//   Tape:      ChildCalls::begin, end         around a child's forward; begin_backward, end_backward around its backward
//   Parameter: ChildCalls::asked(state)       a layer asks for its values

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <weft/engine/engine_state.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/parameter_state.hpp>

namespace weft::detail {

/// Identifies a type of layer.
template <class L>
inline constexpr char layer_kind = 0;

class ChildCalls final : public ParameterWatch {
 public:
  using AllHooks = std::span<Hooks* const>;
  /// A part: parameters that are gathered and reduced together, those of one layer. The unit of all, and of the trainable ones.
  struct Part {
    Unit *whole, *trained;
    std::size_t outstanding = 0;  ///< calls that used it and whose backward is still to come
    bool open = false;            ///< asked for since the child, or the Module, began
    bool made = false;            ///< its gradients were made ready in this backward
  };

  /// `root`: layer_kind of the Module, whose call of itself is no child's.
  explicit ChildCalls(const void* root) : root_(root) {}

  /// From now on the Module's parameters are these parts. Otherwise they are one unit, and only requested parameters are counted.
  void split(std::span<Unit> whole, std::span<Unit> trained) {
    for (std::size_t i = 0; i < whole.size(); ++i) {
      parts_.push_back({&whole[i], &trained[i]});
      for (ParameterState* state : whole[i].parameters) state->watch(*this, i);
    }
  }
  bool splits() const { return !parts_.empty(); }
  bool is_root(const void* kind) const { return kind == root_; }

  /// The number of requests by layers for the values of trainable parameters.
  std::size_t asked_trainable() const { return asked_trainable_; }
  /// A layer keeps numbers that its backward counts.
  void keeps_counts() { ++kept_counts_; }
  std::size_t kept_counts() const { return kept_counts_; }

  void asked(ParameterState& state) override {
    asked_trainable_ += state.trainable();
    if (!running_) return;
    Part& part = parts_[state.part()];
    if (part.open) return;
    part.open = true;
    open_.push_back(state.part());
    for (Hooks* hooks : hooks_) backward_ ? hooks->before_backward(*part.whole) : hooks->before_forward(*part.whole);
  }

  // ---- the Module's own forward and backward

  void begin_step() {
    for (Part& part : parts_) part.outstanding = 0, part.made = false;
    free_.clear();
    used_ = 0;
  }
  void begin_unit(AllHooks hooks, bool backward) {
    hooks_ = hooks;
    backward_ = backward;
    running_ = splits();
    depth_ = child_ = 0;
    open_.clear();
    for (Part& part : parts_) part.open = false;
    accumulator_ = nullptr;
  }
  /// In a backward: the gradients of parts of which no call is outstanding are made ready as soon as a child's backward ends.
  void reduce_early(GradientAccumulator& accumulator, bool last) {
    if (accumulator.separates_terms()) return;
    accumulator_ = &accumulator;
    last_ = last;
  }
  void end_unit() {
    close(0);
    running_ = false;
  }
  /// The Module's backward has ended: makes ready all parts that are not, and those with later additions.
  void ready(GradientAccumulator& accumulator, AllHooks hooks, bool last) {
    for (std::size_t i = parts_.size(); i-- > 0;) {
      Part& part = parts_[i];
      const auto& states = part.trained->parameters;
      const bool added =
          std::any_of(states.begin(), states.end(), [](const ParameterState* state) { return !state->gradients().fresh(); });
      const bool made = std::exchange(part.made, false);
      if (last || (part.outstanding == 0 && (!made || added)))
        if (!made || added) accumulator.ready(*part.trained, hooks, last);
    }
  }

  // ---- a child's call

  /// Whether a child runs already; its own children are parts of it.
  bool inside() const { return depth_ > 0; }
  void begin() {
    ++depth_;
    child_ = open_.size();
  }
  /// Returns a number for end_backward if backward follows.
  std::size_t end(bool records) {
    --depth_;
    std::size_t call = 0;
    if (records && running_) {
      if (free_.empty()) {
        call = used_++;
        if (used_ > calls_.size()) calls_.emplace_back();
      } else {
        call = free_.back();
        free_.pop_back();
      }
      calls_[call].assign(open_.begin() + std::ptrdiff_t(child_), open_.end());
      for (const std::size_t part : calls_[call]) ++parts_[part].outstanding;
    }
    close(child_);
    return call;
  }
  void begin_backward() {
    if (depth_++ == 0) child_ = open_.size();
  }
  void end_backward(std::size_t call) {
    if (--depth_ != 0 || !running_) return;
    close(child_);
    for (const std::size_t i : calls_[call]) {
      Part& part = parts_[i];
      if (--part.outstanding != 0 || accumulator_ == nullptr) continue;
      part.made = true;
      accumulator_->ready(*part.trained, hooks_, last_);
    }
    free_.push_back(call);
  }

 private:
  // Releases the parts requested after the first `kept`.
  void close(std::size_t kept) {
    while (open_.size() > kept) {
      Part& part = parts_[open_.back()];
      open_.pop_back();
      part.open = false;
      for (std::size_t i = hooks_.size(); i-- > 0;)
        backward_ ? hooks_[i]->after_backward(*part.whole) : hooks_[i]->after_forward(*part.whole);
    }
  }

  const void* root_;
  std::vector<Part> parts_;
  std::vector<std::size_t> open_;                // parts that are in use, in the order in which layers asked for them
  std::vector<std::vector<std::size_t>> calls_;  // of calls whose backward is still to come, the parts that they used
  std::vector<std::size_t> free_;
  std::size_t used_ = 0, depth_ = 0, child_ = 0, asked_trainable_ = 0, kept_counts_ = 0;
  bool running_ = false, backward_ = false, last_ = false;
  AllHooks hooks_;
  GradientAccumulator* accumulator_ = nullptr;
};

/// Around the forward (or backward) of a unit: its events, or, of a Module whose children are units, theirs.
inline void enter_unit(EngineState& engine, Unit& unit, bool backward) {
  engine.unit = engine.first_step ? &unit : nullptr;
  if (engine.calls != nullptr && engine.calls->splits()) return engine.calls->begin_unit(engine.hooks, backward);
  for (Hooks* hooks : engine.hooks) backward ? hooks->before_backward(unit) : hooks->before_forward(unit);
}
inline void leave_unit(EngineState& engine, Unit& unit, bool backward) {
  engine.unit = nullptr;
  if (engine.calls != nullptr && engine.calls->splits()) return engine.calls->end_unit();
  for (std::size_t i = engine.hooks.size(); i-- > 0;)
    backward ? engine.hooks[i]->after_backward(unit) : engine.hooks[i]->after_forward(unit);
}

}  // namespace weft::detail
