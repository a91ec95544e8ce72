// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of an optimizer's step in which all ranks take part for every rule: the global gradient norm, and the check that they
// take the same step with the same options. Definitions of members declared in optim/optimizer.hpp, which includes this header.

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/core/text.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

template <class Rule>
double Optimizer<Rule>::gradient_norm() {
  return accumulator_->norm(communicator_, norm_parts(), square()) / (loss_scale_ ? loss_scale_->applied() : 1);
}

template <class Rule>
std::vector<weft::detail::GradientPart> Optimizer<Rule>::norm_parts() const {
  std::vector<weft::detail::GradientPart> parts;
  for (const Slot& slot : slots_) {
    if (!wants_state(slot) || !slot.state->gradient() || !slot.state->gradients().touched()) continue;
    if (slot.state->info().replicas == 1) parts.push_back({slot.state, {0, 0, slot.state->kept()}, slot.state->counted()});
    else
      for (const weft::detail::Run& run : slot.state->runs())
        parts.push_back({slot.state, run, slot.state->counted() && run.owned});
  }
  return parts;
}

template <class Rule>
weft::detail::SquaredNorm Optimizer<Rule>::square() {
  return {this,
          [](void* optimizer, const weft::detail::GradientPart& part, double* out) {
            Optimizer& self = *static_cast<Optimizer*>(optimizer);
            self.squared_norm_(*self.device_, self.wide_gradient(*part.state).get(), part.run, out);
          },
          [](void* optimizer, std::span<const weft::detail::GradientPart> parts, double* out) {
            Optimizer& self = *static_cast<Optimizer*>(optimizer);
            return self.squared_norms_(*self.device_, parts, out);
          }};
}

template <class Rule>
void Optimizer<Rule>::require_same_step(double learning_rate) {
  const std::uint64_t words[] = {options_hash_, std::bit_cast<std::uint64_t>(learning_rate), steps_};
  const std::size_t ranks = std::size_t(communicator_.size());
  // The time of each rank's train_step; not of devices, which compute while the host does something else.
  std::vector<std::uint64_t> times(weft::detail::on_host<Exec> && ranks > 1 ? ranks : 0);
  if (comm::FlightRecorder* const recorder = communicator_.group()->flight().recorder; recorder != nullptr && !times.empty())
    times[std::size_t(communicator_.rank())] =
        comm::Stragglers::word(recorder->times().seconds(recorder->times().take_computed()), stage_);
  const auto found = weft::detail::difference(communicator_, words, times);
  for (const comm::Straggler& slow : stragglers_.add(times))
    if (slow.rank == communicator_.rank()) comm::report(slow);
  if (!found) return;
  const std::string what = found->word == 0 ? std::string("options are not the same")
                           : found->word == 1
                               ? weft::detail::joined({"learning rate is ", std::to_string(std::bit_cast<double>(found->on_rank)),
                                                       ", not ", std::to_string(std::bit_cast<double>(found->on_first))})
                               : weft::detail::joined({"number of steps is ", found->on_rank, ", not ", found->on_first});
  throw_error<UsageError>({"optimizer step: rank ", found->rank, "'s ", what,
                           " as on rank 0: all ranks make an optimizer with the same options and take the same steps"});
}

}  // namespace weft::optim
