// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/unit_calls.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <span>

#include <weft/core/inline.hpp>
#include <weft/pipeline/unit_calls.hpp>

namespace weft::detail {

WEFT_INLINE ModelLossCall::ModelLossCall(std::unique_ptr<OpenCall> open, const LossAxes& axes, double count, LossChecks* checks)
    : open_(std::move(open)), count_(count) {
  const TracedAction action = open_->action('F');
  AnyValue hidden, loss;
  const std::size_t last = open_->run.units() - 1;
  for (std::size_t unit = 0; unit < last; ++unit) open_->run.forward(unit, hidden, hidden);
  if (checks != nullptr && checks->due())
    open_->run.forward(last, [&] {
      if (open_->run.chunk().layers[last]->require_sum(open_->run.call(), hidden)) checks->settle();
    });
  open_->run.forward(last, hidden, loss);
  double sum = copy_to_host(loss.template as<Sum>())[0];
  axes.require_same(std::span<const double>(&sum, 1));
  axes.all_reduce(std::span<double>(&sum, 1));
  value_ = sum / count_;
  waits_ = true;
}

WEFT_INLINE void ModelLossCall::backward(double weight) {
  if (!std::exchange(waits_, false))
    throw_error<UsageError>({"backward of one loss twice: its saved values are gone; compute the loss again"});
  const TracedAction action = open_->action('B');
  const double factor = weight * open_->batch->engine().loss_scale / count_;
  Sum seed(open_->batch->device(), {1});
  send_from_host(seed, std::span<const double>(&factor, 1));
  AnyValue gradient(std::move(seed));
  for (std::size_t unit = open_->run.units(); unit-- > 0;) open_->run.backward(unit, gradient);
}

}  // namespace weft::detail
