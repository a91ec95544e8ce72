// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check that a model's loss is a sum over samples, as weft assumes: samples taken twice must have twice the loss. A model
// that divides by a count itself fails this check. A loss of 0 proves nothing, so each training step checks samples of its first
// micro-batch until some have a nonzero loss. For a model of several units only the last one is computed. A model of one unit (a
// Module) runs whole: Stages::check_whole_loss (pipeline/stages.hpp).
//
//   if (require_loss_is_a_sum(context, last, inputs, hidden, {.env = &env, .micro = 0, .samples = 8})) checks.settle();

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

/// True for a layer or Module that declares its loss a sum although samples taken twice may not have twice the loss: it compares
/// samples with each other, or its experts drop tokens.
template <class L>
inline constexpr bool says_loss_is_a_sum = requires {
  requires L::loss_is_a_sum;
};

/// Throws: the loss `twice` of some samples taken twice is not twice their loss `once`.
[[noreturn]] void refuse_sum(const char* of, bool tokens, std::size_t count, double once, double twice);

/// The losses whose check is settled: the model's (null), and those of user-written loops by the type of the function.
class LossChecks {
 public:
  bool due(const void* kind = nullptr) const { return settled_.count(kind) == 0; }
  void settle(const void* kind = nullptr) { settled_.insert(kind); }

 private:
  std::set<const void*> settled_;
};

/// The smallest number on any rank that computes this loss. Collective.
std::size_t smallest_on_any_rank(const AxesInForce& axes, std::size_t number);

/// The samples of this rank that a check may take.
struct CheckedSamples {
  std::size_t samples = 0;  ///< number of samples
  std::size_t unit = 1;     ///< they are taken in multiples of it
  bool none = false;        ///< this loss cannot be checked
  bool rehearsed = false;   ///< no loss has a value
};
/// loss(first, count, times): the loss of `count` samples from the `first` on, taken `times` times.
using LossOfSamples = std::function<double(std::size_t, std::size_t, std::size_t)>;
/// refuse(count, once, twice): throws.
using RefuseSum = std::function<void(std::size_t, double, double)>;

/// Compares the loss of some samples once and twice. It takes the first samples of a micro-batch that have a nonzero loss on any
/// rank; after samples without one it takes as many as were tried before. Calls `refuse` on all ranks if a rank's second loss
/// differs from twice the first by more than the relative `tolerance`, which covers rounding. Returns true if the check is
/// settled, the same on all ranks. Collective.
bool check_some_samples(const AxesInForce& axes, const CheckedSamples& of, double tolerance, const LossOfSamples& loss,
                        const RefuseSum& refuse);

/// The micro-batch whose samples the last unit takes, and the environment of its forward.
struct LossCheck {
  Environment* env;
  std::size_t micro, samples;
};

/// Throws unless the loss of some samples taken twice is twice their loss. The samples are some of the batch (sequences of
/// tokens), or this rank's rows if tp cuts rows. Nothing is checked if that would exceed a micro-batch's size, or if the hidden
/// value is not a tensor of rows. Returns true if later steps need no check.
template <class Context, class L, class Inputs, class Hidden>
WEFT_COLD bool require_loss_is_a_sum(const Context& context, const L& last, Inputs inputs, const Hidden& hidden,
                                     const LossCheck& of) {
  if constexpr (!AnyTensor<Hidden>) {
    return true;
  } else {
    constexpr bool cut = shard_dim<placement_t<Hidden, tp>> == 0;
    constexpr bool tokens = Inputs::has_tokens;
    const std::size_t all = hidden.shape().rank() == 0 ? 0 : hidden.shape()[0], parts = cut ? context.size(tp{}) : 1;
    const std::size_t samples = all == 0 ? 0 : of.samples, rows = samples == 0 ? 0 : cut ? all : all / samples;
    // One row per token, or the same number of rows for each sample.
    const bool fits = tokens ? all * parts * inputs.sharers() == of.env->rows : samples == 0 || all * parts % samples == 0,
               room = samples >= 2 || rows <= 4096, even = tokens || !cut || samples % parts == 0;
    using H = typename Hidden::value_type;
    const std::size_t width = all == 0 ? 0 : hidden.size() / all;
    struct Restore {
      Environment& env;
      bool training;
      std::size_t rows;
      std::shared_ptr<const std::int32_t> documents;
      ~Restore() {
        env.documents = std::move(documents);
        env.training = training;
        env.rows = rows;
      }
    } restore{*of.env, of.env->training, of.env->rows, std::exchange(of.env->documents, nullptr)};  // documents of other rows
    of.env->training = false;
    // Targets of `count` samples: one per row for tokens; if tp cuts rows, this rank's targets of all samples.
    const auto targets_in = [&](std::size_t count) { return tokens ? count * rows : cut ? of.samples / parts : count; };
    const auto loss = [&](std::size_t first, std::size_t count, std::size_t times) {
      const std::size_t some = count * rows * width, targets = targets_in(count);
      Hidden x(context.device(), with_extent(hidden.shape(), 0, times * count * rows));
      for (std::size_t time = 0; time < times; ++time)
        copy_rows(context.device(), 1, some, static_cast<const H*>(hidden.data()) + first * rows * width, 0,
                  x.data() + time * some, 0);
      const auto repeated = inputs.repeated(of.micro, parts, tokens ? first * rows : first, targets, times);
      of.env->rows = parts * times * targets * inputs.sharers();
      return copy_to_host(weft::forward(last, context, x, repeated).output.sum())[0];
    };
    const CheckedSamples some{.samples = cut ? std::size_t(samples != 0) : samples,
                              .none = !fits || !room || !even,
                              .rehearsed = context.device().rehearsal() != nullptr};
    return check_some_samples(AxesInForce(context), some, 1e-4, loss, [&](std::size_t count, double once, double twice) {
      refuse_sum("model's back", tokens, targets_in(count), once, twice);
    });
  }
}

/// `count` of the `samples` samples' rows of x from sample `first` on, repeated `times` times. Returns an empty tensor if the
/// rows do not divide evenly among samples.
template <AnyTensor X>
WEFT_COLD X rows_of_samples(const X& x, std::size_t samples, std::size_t first, std::size_t count, std::size_t times) {
  if constexpr (shard_dim<placement_t<X, tp>> == 0) {
    return X();
  } else {
    const std::size_t all = x.shape().rank() == 0 ? 0 : x.shape()[0];
    if (all == 0 || samples == 0 || all % samples != 0) return X();
    const std::size_t size = x.size() / samples;
    X few(x.device(), with_extent(x.shape(), 0, times * count * (all / samples)));
    for (std::size_t time = 0; time < times; ++time)
      copy_rows(x.device(), 1, count * size, x.data() + first * size, 0, few.data() + time * count * size, 0);
    return few;
  }
}
template <class... X>
std::tuple<X...> rows_of_samples(const std::tuple<X...>& x, std::size_t samples, std::size_t first, std::size_t count,
                                 std::size_t times) {
  return std::apply([&](const X&... one) { return std::tuple<X...>(rows_of_samples(one, samples, first, count, times)...); }, x);
}
inline bool has_rows(const AnyTensor auto& x) { return bool(x); }
template <class... X>
bool has_rows(const std::tuple<X...>& x) {
  return std::apply([](const X&... one) { return (has_rows(one) && ...); }, x);
}

/// The same check for a layer that computes a loss of tensors: some of the `samples` samples once and twice. Nothing is checked
/// if the layer refuses so few samples, or if a tensor's rows do not divide evenly among samples.
template <class Context, class L, class X>
WEFT_COLD bool require_loss_of_tensors_is_a_sum(Context context, const L& layer, const X& x, std::size_t samples) {
  const std::size_t rows = samples == 0 ? 0 : context.env.rows / samples;
  context.env.training = false;
  context.env.documents = nullptr;
  context.engine.records = false;
  const auto loss = [&](std::size_t first, std::size_t count, std::size_t times) {
    context.env.rows = times * count * rows;
    return copy_to_host(weft::forward(layer, context, rows_of_samples(x, samples, first, count, times)).output.sum())[0];
  };
  try {
    const CheckedSamples some{.samples = samples,
                              .none = samples != 0 && !has_rows(rows_of_samples(x, samples, 0, 1, 1)),
                              .rehearsed = context.device().rehearsal() != nullptr};
    return check_some_samples(AxesInForce(context), some, 1e-4, loss, [](std::size_t count, double once, double twice) {
      refuse_sum("function given to model.loss", false, count, once, twice);
    });
  } catch (const ShapeError&) {
    return true;
  }
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/loss_check_impl.hpp>
#endif
