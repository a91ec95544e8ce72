// SPDX-License-Identifier: Apache-2.0
#pragma once
// The uses that a model's type allows under a context: it can be built, called in user-written loops, and trained. Each answer
// is known at compile time; for a model that does not allow a use the compiler prints one error.
//
//   if constexpr (is_usable<Model, Context>()) ...   // else the compiler has reported why

#include <type_traits>

#include <weft/autograd/model_check.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/sequence_field.hpp>

namespace weft::detail {

/// A repeated unit's Output must have the placement of its Input.
template <class Input, class Output>
constexpr void require_closed() {
  static_assert(
      std::is_same_v<Input, Output>,
      "weft: a repeated block must return what it takes (same placement): here its output has another placement than its input; "
      "wrap the block's layers in Residual, or bring its output back with to_layout_of<X>; see Input and Output "
      "in this function's template arguments");
}

}  // namespace weft::detail

namespace weft {

/// One compile error unless the result of Model's last unit is a loss.
template <class Model, class Loss>
constexpr void require_loss() {
  constexpr bool right = detail::is_loss<Loss> || detail::is_refused<Loss>, module = detail::ModuleModel<Model>,
                 stack = detail::StackModel<Model>;
  static_assert(right || !module,
                "weft: the loss(batch) of this Module must return a loss: mse, cross_entropy, bce_with_logits, or sum_losses(x) "
                "of one number for each sample. Another Variable could be a mean, and weft divides once by the count of the "
                "global batch; see Model and Loss in this function's template arguments");
  static_assert(right || !stack,
                "weft: the last unit of this stack must return a loss: mse, cross_entropy, bce_with_logits, or sum_losses(x) of "
                "one number for each sample. Another value could be a mean, and weft divides once by the count of the global "
                "batch; see Model and Loss in this function's template arguments");
  static_assert(right || module || stack,
                "weft: a model's back must return its loss as a LossSum: sum_losses of one loss a token, or cross_entropy. A "
                "tensor could be a mean, and weft divides once by the tokens of the global batch that count; see Model and Loss "
                "in this function's template arguments");
}

namespace detail {

// M, not Model: nvcc's host pass takes a parameter for the concept of its name.
template <class M, class Context>
constexpr bool builds() {
  if constexpr (!detail::Model<M, constructor_context_t<Context>>) return false;
  else return has_sequences<Context, batch_of_t<M>>;
}
template <class M, class Context>
inline constexpr bool can_be_built = builds<M, Context>();
/// Prints why M cannot be built under Context.
template <class M, class Context>
constexpr void refuse_model() {
  using Constructor = constructor_context_t<Context>;
  if constexpr (detail::Model<M, Constructor>) refuse_without_sequences<batch_of_t<M>>();
  else refuse_functions_of_model<M, Constructor>();
}
/// True if M can be built under Context and called in user-written loops, though it has no loss.
template <class M, class Context>
inline constexpr bool is_open = ModuleModel<M> && !LossModule<M> && can_be_built<M, Context>;

template <class Model>
constexpr void refuse_training() {
  static_assert(
      !ModuleModel<Model>,
      "weft: train_step and evaluate of a Module without a loss: write `auto loss(const auto& batch) const`, which returns "
      "sum_losses(...), in it, or the loop yourself with model.forward(batch) and call.backward(gradient); see Model in "
      "this function's template arguments");
}

/// True if Model can be built and run under Context. Otherwise the compiler has printed one error, about units that do not fit
/// each other or about the construction.
template <class Model, class Context>
constexpr bool is_usable() {
  if constexpr (!can_be_built<Model, Context> || is_open<Model, Context>) {
    return false;
  } else {
    using Types = ModelTypes<Model, Context>;
    if constexpr (!Types::forwards) return false;  // the compiler has reported the layer
    else if constexpr (!Types::closes) require_closed<typename Types::Opened::first_type, typename Types::Opened::second_type>();
    else require_loss<Model, typename Types::LastOutput>();
    return Types::sound;
  }
}

/// True if the model has one unit, so that its loss is checked in forwards of the whole model.
template <class Model, class Context>
constexpr bool is_of_one_unit() {
  if constexpr (is_open<Model, Context>) return false;
  else return ModelTypes<Model, Context>::Last::place == UnitPlace::only;
}
template <class Model, class Context>
inline constexpr bool has_whole_loss = is_of_one_unit<Model, Context>();

}  // namespace detail

}  // namespace weft
