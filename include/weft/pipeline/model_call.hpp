// SPDX-License-Identifier: Apache-2.0
#pragma once
// One forward of a model in a user-written loop: its output, and a backward that adds to the gradients of the model's parameters
// and returns the gradient of its inputs. Several calls, of one model or of several, may be open at the same time. Gradients add
// up until the optimizer's step, which completes their sums over ranks.
//
//   auto call = model.forward(batch);                         // the batch's first fields enter the model's forward
//   auto loss = model.loss(batch, distance, call.output());   // a function of outputs that returns sum_losses(...)
//   call.backward(loss.backward());

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/module.hpp>
#include <weft/core/text.hpp>
#include <weft/device/rehearsal_trace.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/pipeline/loss_axes.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/unit_calls.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

namespace detail {

/// One input as it is, several as a tuple, whose parts all have gradients.
template <class... X>
auto as_one_input(X&&... x) {
  if constexpr (sizeof...(X) == 1) return (std::forward<X>(x), ...);
  else return std::tuple(std::forward<X>(x)...);
}

/// A function of Variables as a layer.
template <class F>
struct FunctionModule : Module<FunctionModule<F>> {
  explicit FunctionModule(F function) : f(std::move(function)) {}
  auto forward(const auto&... x) const { return f(x...); }
  F f;
};

/// The engine state that a call of a model uses.
struct CallPlace {
  Chunk<DefaultDevice::execution_space>* chunk;
  GradientAccumulator* accumulator;
  std::size_t micro;
  Unit& unit() const { return chunk->units.front(); }
};

/// A forward of L under Context on an input X, waiting for its backward.
template <class L, class Context, class X>
class ModelCall {
  using Outcome = forward_of_t<L, Context, X>;

 public:
  using Output = typename Outcome::output_type;

  ModelCall(const Context& context, CallPlace place, L& layer, const X& x)
      : context_(std::make_unique<Context>(context)), place_(place), layer_(&layer) {
    const TracedAction action(context.device().trace(), 'F', place_.micro);
    enter_unit(context_->engine, place_.unit(), false);
    auto result = weft::forward(layer, *context_, x);
    output_ = std::move(result.output);
    saved_ = std::make_unique<typename Outcome::saved_type>(std::move(result.saved));
    leave_unit(context_->engine, place_.unit(), false);
  }

  /// A placed tensor, or a std::tuple of them.
  const Output& output() const { return output_; }

  /// Adds the gradients of the parameters, given that of the output; returns that of the input (of several a std::tuple, of an
  /// input that is not Real Nothing). Collective over the axes that cut the model. Throws UsageError if it is called twice.
  gradient_t<X> backward(const gradient_t<Output>& gradient) {
    if (!saved_)
      throw_error<UsageError>(
          {"backward of one forward twice: its saved values are gone; call forward again, or add up the gradients of "
           "its output first"});
    const TracedAction action(context_->device().trace(), 'B', place_.micro);
    enter_unit(context_->engine, place_.unit(), true);
    ChildCalls* calls = context_->engine.calls;
    if (calls) calls->reduce_early(*place_.accumulator, false);
    place_.accumulator->open(place_.unit(), place_.micro);
    auto split = weft::backward_input(*layer_, *context_, std::move(*saved_), gradient);
    saved_.reset();
    weft::backward_weight(*layer_, *context_, std::move(split.deferred));
    place_.accumulator->leave(place_.unit(), place_.micro);
    leave_unit(context_->engine, place_.unit(), true);
    place_.chunk->ready(0, *place_.accumulator, context_->engine.hooks, false);
    return input_gradient_of<X>(std::move(split.input_gradient));
  }

 private:
  std::unique_ptr<Context> context_;  // tapes point to it
  CallPlace place_;
  L* layer_;
  Output output_;
  std::unique_ptr<typename Outcome::saved_type> saved_;
};

/// A loss in a user-written loop: F of tensors, which form an input X.
template <class F, class Context, class X>
class LossCall {
  using L = FunctionModule<F>;
  using Outcome = forward_of_t<L, Context, X>;
  using Loss = typename Outcome::output_type;
  static_assert(is_loss<Loss> || is_refused<Loss>,
                "weft: the function given to model.loss must return a loss, sum_losses(...) of one number for each sample: weft "
                "divides once by the model's count of the global batch");

 public:
  /// `count`: the count of the global batch. `samples`: number of samples in the tensors, used to check that the loss is a sum.
  LossCall(const Context& context, F f, double count, const X& x, std::size_t samples, LossChecks& checks)
      : context_(std::make_unique<Context>(context)), layer_(std::make_unique<L>(std::move(f))), count_(count) {
    if (checks.due(&layer_kind<F>) && require_loss_of_tensors_is_a_sum(context, *layer_, x, samples))
      checks.settle(&layer_kind<F>);
    const TracedAction action(context.device().trace(), 'F', 0);
    auto result = weft::forward(*layer_, *context_, x);
    device_ = &result.output.sum().device();
    double sum = copy_to_host(result.output.sum())[0];
    const LossAxes axes = loss_axes<Loss>(*context_);
    axes.require_same(std::span<const double>(&sum, 1));
    axes.all_reduce(std::span<double>(&sum, 1));
    value_ = sum / count_;
    saved_ = std::make_unique<typename Outcome::saved_type>(std::move(result.saved));
  }
  /// The sum over the global batch divided by its count, the same on every rank.
  double value() const { return value_; }
  /// `weight` times the gradient of value() by the tensors (a std::tuple of several), times the model's loss scale if it has
  /// one: a chain of calls begins with the loss of the model whose optimizer steps. Once.
  gradient_t<X> backward(double weight = 1) {
    if (!saved_) throw_error<UsageError>({"backward of one loss twice: its saved values are gone; compute the loss again"});
    const TracedAction action(device_->trace(), 'B', 0);
    using G = gradient_t<Loss>;
    G seed(*device_, {1});
    const double factor = weight * context_->engine.loss_scale / count_;
    detail::send_from_host(seed, std::span<const double>(&factor, 1));
    auto split = weft::backward_input(*layer_, *context_, std::move(*saved_), seed);
    saved_.reset();
    return input_gradient_of<X>(std::move(split.input_gradient));
  }

 private:
  std::unique_ptr<Context> context_;
  std::unique_ptr<L> layer_;
  double count_, value_ = 0;
  typename Context::device_type* device_ = nullptr;
  std::unique_ptr<typename Outcome::saved_type> saved_;
};

}  // namespace detail

}  // namespace weft
