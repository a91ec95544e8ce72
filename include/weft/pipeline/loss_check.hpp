// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether a model's loss is the sum over samples that weft takes it for: samples taken twice must have twice the loss, which they
// have not if the model divides by a count itself. Of a model of several units the last one is asked, once, in the first training
// step; of a model of one unit (a Module) see pipeline/whole_loss_check.hpp.
//
//   require_loss_is_a_sum(context, last, inputs, hidden, {.env = &env, .micro = 0, .samples = 8});

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/layer/context.hpp>
#include <weft/layer/layer.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

/// A layer, or a model that is a Module, that says that its loss is a sum though samples taken twice may have another one than
/// twice theirs: samples are compared with each other, or experts drop tokens.
template <class L>
inline constexpr bool says_loss_is_a_sum = requires {
  requires L::loss_is_a_sum;
};

/// Throws unless `twice`, the loss of some samples taken twice, is twice `once`, theirs, but for a share of `tolerance`.
WEFT_COLD inline void require_twice(const char* of, bool tokens, std::size_t count, double once, double twice, double tolerance) {
  // Not what could be rounding, and nothing if one is no number.
  if (!(std::abs(twice - 2 * once) > tolerance * (std::abs(once) + std::abs(twice)))) return;
  const char* what = tokens ? "tokens" : "samples";
  throw_error<UsageError>(
      {"the loss of this ", of, " is not a sum over ", what, ": that of ", count, " ", what, " is ", std::to_string(once),
       ", that of the same ", what, " twice ", std::to_string(twice), ". Leave out the division by a count: weft divides by the ",
       tokens ? "targets of the global batch that count" : "samples of the global batch, or by the model's count",
       ", and x.rows() is what one rank has of one micro-batch. Where samples are compared with each other, write `static "
       "constexpr bool loss_is_a_sum = true;` beside the loss"});
}

/// The micro-batch with whose samples the last unit is asked, and the environment of its forward.
struct LossCheck {
  Environment* env;
  std::size_t micro, samples;
};

/// Throws unless the loss of some samples taken twice is twice their loss. The samples are one of the batch (one sequence of
/// tokens), or the rows on this rank if tp cuts rows. Nothing is checked if that would be more than a micro-batch should hold, or
/// if the hidden value is no tensor of rows.
template <class Context, class L, class Inputs, class Hidden>
WEFT_COLD void require_loss_is_a_sum(const Context& context, const L& last, Inputs inputs, const Hidden& hidden,
                                     const LossCheck& of) {
  if constexpr (AnyTensor<Hidden>) {
    constexpr bool cut = shard_dim<placement_t<Hidden, tp>> == 0;
    constexpr bool tokens = Inputs::has_tokens;
    const std::size_t all = hidden.shape().rank() == 0 ? 0 : hidden.shape()[0], parts = cut ? context.size(tp{}) : 1;
    // One row for each token, or the same number of rows for each sample.
    if (of.samples == 0 || (tokens ? all * parts * inputs.sharers() != of.env->rows : all * parts % of.samples != 0)) return;
    const std::size_t rows = cut ? all : all / of.samples, count = tokens ? rows : cut ? of.samples / parts : 1;
    if (rows == 0 || (of.samples < 2 && rows > 4096) || (!tokens && cut && of.samples % parts != 0)) return;
    using H = typename Hidden::value_type;
    const std::size_t width = hidden.size() / all;
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
    } restore{*of.env, of.env->training, of.env->rows, std::exchange(of.env->documents, nullptr)};  // not of these rows
    of.env->training = false;
    double losses[2];
    for (const std::size_t times : {1, 2}) {
      Hidden x(context.device(), with_extent(hidden.shape(), 0, times * rows));
      for (std::size_t time = 0; time < times; ++time)
        copy_rows(context.device(), 1, rows * width, static_cast<const H*>(hidden.data()), 0, x.data() + time * rows * width, 0);
      const auto targets = inputs.repeated(of.micro, parts, count, times);
      of.env->rows = parts * times * count * inputs.sharers();
      losses[times - 1] = copy_to_host(weft::forward(last, context, x, targets).output.sum())[0];
    }
    require_twice("model's back", tokens, count, losses[0], losses[1], 1e-4);
  }
}

/// The rows of `count` of the `samples` samples of x, `times` times; an empty tensor if its rows are not those of samples.
template <AnyTensor X>
WEFT_COLD X rows_of_samples(const X& x, std::size_t samples, std::size_t count, std::size_t times) {
  if constexpr (shard_dim<placement_t<X, tp>> == 0) {
    return X();
  } else {
    const std::size_t all = x.shape().rank() == 0 ? 0 : x.shape()[0];
    if (all == 0 || samples == 0 || all % samples != 0) return X();
    const std::size_t rows = all / samples * count, width = x.size() / all;
    X few(x.device(), with_extent(x.shape(), 0, times * rows));
    for (std::size_t time = 0; time < times; ++time)
      copy_rows(x.device(), 1, rows * width, x.data(), 0, few.data() + time * rows * width, 0);
    return few;
  }
}
template <class... X>
std::tuple<X...> rows_of_samples(const std::tuple<X...>& x, std::size_t samples, std::size_t count, std::size_t times) {
  return std::apply([&](const X&... one) { return std::tuple<X...>(rows_of_samples(one, samples, count, times)...); }, x);
}
inline bool has_rows(const AnyTensor auto& x) { return bool(x); }
template <class... X>
bool has_rows(const std::tuple<X...>& x) {
  return std::apply([](const X&... one) { return (has_rows(one) && ...); }, x);
}

/// The same of a loss of tensors, a layer: one of the `samples` samples once and twice. Nothing is checked if the layer refuses
/// so few, or if a tensor has no rows of samples.
template <class Context, class L, class X>
WEFT_COLD void require_loss_of_tensors_is_a_sum(Context context, const L& layer, const X& x, std::size_t samples) {
  const std::size_t rows = samples == 0 ? 0 : context.env.rows / samples;
  context.env.training = false;
  context.env.documents = nullptr;
  context.engine.records = false;
  double losses[2];
  try {
    for (const std::size_t times : {1, 2}) {
      const X few = rows_of_samples(x, samples, 1, times);
      if (!has_rows(few)) return;
      context.env.rows = times * rows;
      losses[times - 1] = copy_to_host(weft::forward(layer, context, few).output.sum())[0];
    }
  } catch (const ShapeError&) {
    return;
  }
  require_twice("function given to model.loss", false, 1, losses[0], losses[1], 1e-4);
}

}  // namespace weft::detail
