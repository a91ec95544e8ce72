// SPDX-License-Identifier: Apache-2.0
#pragma once
// The step of an optimizer. On hosts the norm comes first, then the updates. On a device the updates are queued after the norm,
// and compute the clipping there; the host reads the norm while they run, so the device never waits for the host. Definitions of
// members declared in optim/optimizer.hpp, which includes this header.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <weft/device/number_to_host.hpp>
#include <weft/device/region.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/optim/optimizer.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::optim {

template <class Rule>
StepReport Optimizer<Rule>::step(double learning_rate) {
  const comm::InFunction mark(communicator_, comm::ProgramFunction::optimizer_step);
  const trace::Region region([] { return std::string("optimizer step"); });
  require_option("learning rate", learning_rate);
  const bool own_loop = gradients_ && gradients_->open;
  if (gradients_) gradients_->complete();
  if (std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.made != wants_state(slot); }))
    follow_trainable();
  require_gradients(own_loop);
  require_same_step(learning_rate);
  if constexpr (requires { Rule::check_rate(options_, learning_rate); }) Rule::check_rate(options_, learning_rate);
  using weft::detail::ProofPhase;
  weft::detail::Proof* const proof = device_->proof();
  const auto note = [&](ProofPhase phase) {
    if constexpr (detail::has_home<Rule>)
      if (phase == ProofPhase::updated) prove_home(*proof);
    weft::detail::prove_slots(*device_, *proof, phase, this, slots_,
                              phase == ProofPhase::gradient && loss_scale_ ? loss_scale_->applied() : 1);
  };
  if (proof != nullptr) [[unlikely]]
    note(ProofPhase::gradient);
  StepReport report;
  const std::optional<double> known = update_behind_norm(learning_rate);
  report.gradient_norm = known ? *known : gradient_norm();
  if (proof != nullptr) [[unlikely]]
    report.gradient_norm = weft::detail::prove_norm(*proof, this, report.gradient_norm);
  report.skipped = !std::isfinite(report.gradient_norm);
  if (gradients_ && report.skipped) used_ = gradients_->use(true);
  if (report.skipped) {
    if (loss_scale_) loss_scale_->update(true);
    if (proof != nullptr) [[unlikely]]
      note(ProofPhase::updated);
    return report;
  }
  if (!known) {
    const double scale = kernels::clip_factor(report.gradient_norm, loss_scale_ ? loss_scale_->applied() : 1, options_.clip);
    if (store_) {
      const auto apply = [](const void* call, Slot& slot) {
        const auto& [optimizer, rate, factor] = *static_cast<const Call*>(call);
        optimizer->update(slot, rate, {.value = factor});
      };
      const Call call{this, learning_rate, scale};
      offload_->update(*device_, *store_, communicator_, slots_, apply, &call);
    } else {
      update_due(learning_rate, {.value = scale});
      if constexpr (detail::is_served<Rule>) step_whole(learning_rate, scale);
    }
  }
  if (ema_decay() > 0)  // also of parameters that no gradient has changed, as AveragedModel
    for (Slot& slot : slots_)
      if (slot.made && slot.state->kept() != 0) average(slot);
  for (Slot& slot : slots_)  // rules count from the first gradient
    if (slot.made && slot.begun == steps_ && !slot.state->gradients().touched()) ++slot.begun;
  ++steps_;
  if (proof != nullptr) [[unlikely]]
    note(ProofPhase::updated);
  if (gradients_) used_ = gradients_->use(false);
  if (loss_scale_) loss_scale_->update(false);
  if (compare_every_ != 0 && (steps_ == 1 || steps_ % compare_every_ == 0)) compare_(model_);
  if (Rehearsal* const notes = device_->rehearsal(); notes != nullptr) [[unlikely]]
    notes->stepped(this, device_->arena().use());
  return report;
}

template <class Rule>
WEFT_COLD void Optimizer<Rule>::follow_trainable() {
  for (Slot& slot : slots_)
    if (slot.made && !slot.state->trainable()) {
      slot.state->claim(nullptr);
      slot = without_state(slot);
    } else if (!slot.made && wants_state(slot)) {
      make_state(slot);
    }
  if (store_) store_->commit();
}

template <class Rule>
void Optimizer<Rule>::require_gradients(bool own_loop) const {
  for (const Slot& slot : slots_)
    if (!slot.state->gradient() && slot.due())
      throw_error<UsageError>({"optimizer step before any train_step: ", slot.state->name(), " has no gradient"});
  if (!gradients_) return;
  gradients_->require_new(used_);
  const auto made = [](const Slot& slot) { return slot.made; };
  const auto touched = [](const Slot& slot) { return slot.made && slot.state->gradients().touched(); };
  if (own_loop && std::any_of(slots_.begin(), slots_.end(), made) && std::none_of(slots_.begin(), slots_.end(), touched))
    weft::detail::refuse_no_backward();
}

template <class Rule>
std::optional<double> Optimizer<Rule>::update_behind_norm([[maybe_unused]] double learning_rate) {
  if constexpr (weft::detail::on_host<Exec> || detail::is_served<Rule>) {
    return {};
  } else {
    if (elements_.all == nullptr || store_) return {};
    const Tensor<double, Exec> squares(*device_, {1});
    if (!accumulator_->squares_on_device(communicator_, norm_parts(), square(), squares.data())) return {};
    auto& to_host = device_->template cache<weft::detail::NumberToHost<Exec>>();
    to_host.start(*device_, squares.data(), squares.buffer());
    const double loss_scale = loss_scale_ ? loss_scale_->applied() : 1;
    update_due(learning_rate, {.squares = squares.data(), .loss_scale = loss_scale, .clip = options_.clip});
    const double sum = to_host.wait(*device_);
    communicator_.check();
    return std::sqrt(sum) / loss_scale;
  }
}

template <class Rule>
void Optimizer<Rule>::update_due(double learning_rate, const kernels::GradientScale& scale) {
  std::vector<detail::SlotUpdate<Options>> together;
  for (Slot& slot : slots_) {
    if (!slot.due() || slot.whole) continue;
    const bool wide = slot.state->kept_gradient_type() == slot.state->gradient_type();  // otherwise it needs separate memory
    if (elements_.all == nullptr || !wide) update(slot, learning_rate, scale);
    else
      together.push_back(
          {&slot, &grouped_.options[slot.group], learning_rate * grouped_.ratios[slot.group], steps_ + 1 - slot.begun});
  }
  if (!together.empty()) elements_.all(*device_, together, scale);
}

template <class Rule>
weft::detail::Buffer Optimizer<Rule>::wide_gradient(const ParameterState& state) {
  if (state.kept_gradient_type() == state.gradient_type()) return state.gradient();
  weft::detail::Buffer wide = device_->allocate(state.kept() * size_of(state.gradient_type()));
  widen_(*device_, state.kept(), state.gradient().get(), wide.get());
  return wide;
}

template <class Rule>
void Optimizer<Rule>::update(Slot& slot, double learning_rate, const kernels::GradientScale& scale) {
  const detail::LentSlot lent(slot, wide_gradient(*slot.state));
  elements_.one(*device_, slot, grouped_.options[slot.group], learning_rate * grouped_.ratios[slot.group], scale,
                steps_ + 1 - slot.begun);
}

}  // namespace weft::optim
