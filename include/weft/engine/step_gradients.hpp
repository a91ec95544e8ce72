// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training steps of a model: their numbers, for which dropout is drawn, and whether the gradients of the last one have been
// applied. A model shares it with its optimizers, and a checkpoint stores the number of the next step.
//
//   context.env.step = gradients.number_of(batch.step);
//   gradients.begin(context.env.step, batch.step.is_set());

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>

namespace weft::detail {

/// An incomplete step of a user's loop: the gradients of its calls so far are this rank's.
struct OpenStep {
  virtual ~OpenStep() = default;
  /// Completes the sums over ranks. Collective over the mesh.
  virtual void complete() = 0;
  bool has_loss = false;     ///< a loss of this model was computed, which its loss scale multiplies
  std::uint64_t number = 0;  ///< with which the step began
};

struct StepGradients {
  bool applied = true;             ///< an optimizer has used the gradients of the last step, or there are none to lose
  std::unique_ptr<OpenStep> open;  ///< null: no user's loop has begun a step
  std::size_t micro_batches = 1;   ///< of the batch with which that step began
  std::uint64_t next = 0;          ///< the number of the next step whose batch has none
  std::size_t optimizers = 0;      ///< optimizers of this model

  /// Whether an optimizer would miss the gradients of the last step if another step began.
  bool pending() const { return optimizers > 0 && !applied; }

  void complete() {
    if (const std::unique_ptr<OpenStep> step = std::move(open)) step->complete();
  }

  // ---- numbers

  /// The number of a step on a batch with this Batch::step, or of the open step.
  std::uint64_t number_of(const BatchStep& step) const {
    return step.is_set() ? std::uint64_t(step) : open ? open->number : next;
  }
  /// A step of this number begins; `given`: it is the batch's own.
  void begin(std::uint64_t number, bool given) {
    next = number;
    ++begun_;
    draw(number, given);
  }
  /// A call of the step draws for this number.
  void draw(std::uint64_t number, bool given) {
    given_ = given ? std::optional(number) : std::nullopt;
    next = std::max(next, number + 1);
  }
  /// Throws UsageError if the gradients of a step of this number, which a batch gave, or of a later one were applied.
  WEFT_COLD void require_counted(const BatchStep& step) const {
    if (step.is_set() && applied_number_ && std::uint64_t(step) <= *applied_number_) refuse_number(step);
  }
  /// The model was loaded: its next step has this number, and batches may give any.
  void restart(std::uint64_t number) {
    next = number;
    given_ = applied_number_ = std::nullopt;
  }

  /// Whether the step that begins, or that is open, is the model's first one.
  bool is_first() const { return begun_ <= (open ? 1u : 0u); }

  // ---- optimizers

  /// An optimizer that is made now may apply the gradients of steps after this one.
  std::uint64_t used() const { return applied ? begun_ : 0; }
  /// Throws UsageError if an optimizer that has used the gradients of step `used` finds no new ones.
  WEFT_COLD void require_new(std::uint64_t used) const {
    if (begun_ == 0) throw_error<UsageError>({"optimizer step before any train_step: no parameter has a gradient"});
    if (used == begun_ || discarded_ == begun_)
      throw_error<UsageError>(
          {"optimizer step without a gradient since the last one: the gradients of a training step are applied once, and these "
           "were ",
           discarded_ == begun_ ? "discarded" : "applied",
           "; call train_step, or backward in a custom training loop, before each step"});
    if (given_ && applied_number_ && *given_ <= *applied_number_) refuse_number(*given_);
  }
  /// An optimizer has applied the gradients, or has skipped the step since they are not finite. Returns the step for require_new.
  std::uint64_t use(bool skipped) {
    applied = true;
    if (!skipped && given_) applied_number_ = std::max(*given_, applied_number_.value_or(0));
    return begun_;
  }
  /// The gradients will not be used.
  void discard() {
    applied = true;
    discarded_ = begun_;
  }

 private:
  [[noreturn]] void refuse_number(std::uint64_t number) const {
    const std::uint64_t applied = *applied_number_;
    if (number == applied)
      throw_error<UsageError>(
          {"the batch's step is ", number, ", as in the step that the optimizer applied last, so dropout would draw ",
           "the same masks again: count it (++batch.step), or set batch.step = {}, and the model counts its steps"});
    throw_error<UsageError>({"the batch's step is ", number, ", and the optimizer has applied step ", applied,
                             ", so dropout would draw the masks of earlier steps again: continue the numbers "
                             "(data::LoaderOptions::first_step), or set "
                             "batch.step = {}, and the model counts its steps"});
  }

  std::uint64_t begun_ = 0, discarded_ = 0;              // steps of this object so far; the one that was discarded last
  std::optional<std::uint64_t> given_, applied_number_;  // the number that the last step's batch gave; the highest one applied
};

[[noreturn]] WEFT_COLD inline void refuse_no_backward() {
  throw_error<UsageError>(
      {"optimizer step without a gradient since the last one: a custom training loop called the model's forward, "
       "and no backward has added to a gradient; call backward before the optimizer's step, or "
       "model.discard_gradients()"});
}

/// Counts an optimizer of these steps until the last copy of the returned handle ends.
inline std::shared_ptr<StepGradients> register_optimizer(std::shared_ptr<StepGradients> gradients) {
  StepGradients* const of = gradients.get();
  ++of->optimizers;
  return {of, [gradients = std::move(gradients)](StepGradients*) { --gradients->optimizers; }};
}

}  // namespace weft::detail
