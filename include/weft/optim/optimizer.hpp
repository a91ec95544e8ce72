// SPDX-License-Identifier: Apache-2.0
#pragma once
// What all optimizers share: the global gradient norm, clipping, and the decision to skip a step, the same on every rank. The
// update itself is a Rule (AdamW, Sgd).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/nn/hooks.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::optim {

/// What a step did, the same on every rank.
struct StepReport {
  double gradient_norm = 0;  ///< before clipping, over all elements of the model
  bool skipped = false;      ///< a gradient was not finite: parameters and optimizer state are bitwise what they were
};

/// A parameter, or what this rank keeps of it, and the buffers that a rule keeps beside it, all in its accumulate type.
struct Slot {
  ParameterState* state = nullptr;
  Buffer master;             ///< parameter in accumulate_t where that is wider than the parameter's type, else null
  std::vector<Buffer> kept;  ///< Rule::buffers of them, zero at first
};

/// Rule: `Options` with learning_rate and clip, `static constexpr buffers`, and
/// `update<P>(device, slot, options, learning_rate, gradient_scale, step)`.
template <class Rule>
class Optimizer {
 public:
  using Options = typename Rule::Options;
  using Exec = DefaultDevice::execution_space;

  /// For the parameters that this rank holds of `model` (a wrapper, or SingleDevice), which must outlive the optimizer.
  template <class Model>
  explicit Optimizer(Model& model, const Options& options = {}) : options_(options), communicator_(model.communicator()), device_(&model.device()) {
    if (!(options.learning_rate >= 0)) throw UsageError("learning rate " + std::to_string(options.learning_rate) + " is not a number of at least 0");
    if (options.clip < 0) throw UsageError("clip " + std::to_string(options.clip) + " is negative; 0 turns clipping off");
    using P = typename Model::model_type::scalar;
    update_ = &Rule::template update<P, Exec>;
    squared_norm_ = [](Device<Exec>& device, const ParameterState& state, const Run& run, double* out) {
      kernels::squared_norm(device, run.length, static_cast<const accumulate_t<P>*>(state.gradient.get()) + run.local, out);
    };
    model.for_each_state([this](ParameterState& state) { slots_.push_back(make_slot<P>(state)); });
  }

  StepReport step() { return step(options_.learning_rate); }
  /// Applies the gradients of the last train_step. Clipping (options.clip > 0) scales all of them by min(1, clip / (norm +
  /// 1e-6)), as torch.nn.utils.clip_grad_norm_ does. Collective over the whole mesh. Throws UsageError before any train_step.
  StepReport step(double learning_rate) {
    for (const Slot& slot : slots_)
      if (!slot.state->gradient && slot.state->kept() != 0) throw UsageError("optimizer step before any train_step: " + slot.state->name + " has no gradient");
    StepReport report;
    report.gradient_norm = gradient_norm();
    report.skipped = !std::isfinite(report.gradient_norm);
    if (report.skipped) return report;
    const double scale = options_.clip > 0 ? std::min(1.0, options_.clip / (report.gradient_norm + 1e-6)) : 1.0;
    ++steps_;
    for (Slot& slot : slots_)
      if (slot.state->kept() != 0) update_(*device_, slot, options_, learning_rate, scale, steps_);
    return report;
  }

  /// The 2-norm over all elements of the model, each logical element once, summed in double (NaN or infinity if any gradient
  /// of any rank is). Collective over the whole mesh; the same bits on every rank.
  double gradient_norm() {
    struct Part {
      const ParameterState* state;
      Run run;
      bool counted;
    };
    std::vector<Part> parts;
    for (const Slot& slot : slots_) {
      if (!slot.state->gradient) continue;
      if (slot.state->replicas == 1) parts.push_back({slot.state, {0, 0, slot.state->kept()}, slot.state->counted});
      else
        for (const Run& run : slot.state->runs) parts.push_back({slot.state, run, slot.state->counted && run.owned});
    }
    Tensor<double, Exec> squares(*device_, {std::max<std::size_t>(1, parts.size())});
    for (std::size_t i = 0; i < parts.size(); ++i) squared_norm_(*device_, *parts[i].state, parts[i].run, squares.data() + i);
    double sum = 0;
    const auto host = copy_to_host(squares);
    // What another rank counts is looked at too: a copy that went bad on this rank alone must stop all ranks.
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (parts[i].counted || !std::isfinite(host[i])) sum += host[i];
    communicator_.all_reduce(std::span<double>(&sum, 1));
    return std::sqrt(sum);
  }

  /// Steps applied so far; skipped ones do not count.
  std::uint64_t steps() const { return steps_; }
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  template <class P>
  Slot make_slot(ParameterState& state) {
    using A = accumulate_t<P>;
    Slot slot{&state, nullptr, {}};
    if (state.kept() == 0) return slot;
    for (int i = 0; i < Rule::buffers; ++i) {
      slot.kept.push_back(device_->allocate_lasting(state.kept() * sizeof(A)));
      kernels::fill(*device_, state.kept(), static_cast<A*>(slot.kept.back().get()), A(0));
    }
    if constexpr (!std::is_same_v<P, A>) {
      slot.master = device_->allocate_lasting(state.kept() * sizeof(A));
      kernels::cast<P, A>(*device_, state.kept(), static_cast<const P*>(state.value.get()), static_cast<A*>(slot.master.get()));
    }
    return slot;
  }

  Options options_;
  Communicator communicator_;
  DefaultDevice* device_;
  // For the model's element type: known where the optimizer is made, so only that one is compiled.
  void (*update_)(Device<Exec>&, Slot&, const Options&, double, double, std::uint64_t);
  void (*squared_norm_)(Device<Exec>&, const ParameterState&, const Run&, double*);
  std::vector<Slot> slots_;
  std::uint64_t steps_ = 0;
};

}  // namespace weft::optim
