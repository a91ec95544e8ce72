// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss scale of training in float16. Gradients below 6e-8 would be zero there, so the loss is multiplied by a factor before
// backward and the optimizer divides the gradients by it (Micikevicius et al., arXiv:1710.03740). The factor is adapted while
// training: it grows after many good steps in a row; a step whose gradients overflowed is skipped and halves it.
//
//   Model model(mesh, config, {.numerics = {.loss_scale = LossScaleOptions{.initial = 1024}}});  // float16: on by default
//   optim::AdamW optimizer(model);                                                               // unscales, skips and adapts
//   model.loss_scale()->value();

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <weft/core/error.hpp>

namespace weft {

/// Options of a loss scale for float16, as those of torch.amp.GradScaler.
struct LossScaleOptions {
  double initial = 65536;
  double growth = 2;     ///< after `interval` good steps in a row; 1: a fixed factor
  double backoff = 0.5;  ///< after a step that was skipped
  std::uint64_t interval = 2000;
  double smallest = 1, largest = 0x1p+24;
};

/// Every rank has one, and all hold the same value: a step is skipped by all ranks or none.
class LossScale {
 public:
  using Options = LossScaleOptions;

  explicit LossScale(const Options& options = {});

  /// The factor by which the loss is multiplied.
  double value() const { return value_; }
  /// The factor by which the present gradients were multiplied.
  double applied() const { return applied_; }
  /// A training step begins.
  void apply() { applied_ = value_; }
  /// Good steps since the factor last changed.
  std::uint64_t good_steps() const { return good_steps_; }
  /// The optimizer reports a step.
  void update(bool skipped);
  /// From a checkpoint. Throws UsageError for a factor that is not in [smallest, largest].
  void restore(double value, std::uint64_t good_steps);

 private:
  [[noreturn]] static void refuse(const Options& options);

  Options options_;
  double value_, applied_ = 1;
  std::uint64_t good_steps_ = 0;
};

namespace optim {
using weft::LossScale;
}

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/engine/loss_scale_impl.hpp>
#endif
