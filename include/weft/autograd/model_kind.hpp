// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kinds of models, by their definition: a recipe of a front, equal blocks and a back; a stack of units of any types;
// a module with a loss. Every wrapper takes all of them, a pipeline the first two. The engine has only the stack: a recipe is
// a stack of three kinds of unit, a module a stack of one.
//
//   static_assert(detail::StackModel<Net>);
//   using Batch = detail::batch_of_t<Net>;   // Net::Batch, or TokenBatch

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <weft/autograd/model.hpp>
#include <weft/core/has_member.hpp>
#include <weft/core/scalar.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>

namespace weft {
template <class Self>
class Module;
}

namespace weft::detail {

namespace model_kind {
WEFT_HAS_MEMBER(stack)
WEFT_HAS_MEMBER(check)
WEFT_HAS_MEMBER(count)
WEFT_HAS_MEMBER(check_batch)
WEFT_HAS_MEMBER(loss)
}  // namespace model_kind

/// The types of a model of a front, equal blocks and a back, and the number of its blocks.
template <class M>
concept ModelRecipe = requires(const typename M::Config& config) {
  requires Real<typename M::scalar>;
  typename M::Front;
  typename M::Block;
  typename M::Back;
  { M::blocks(config) } -> std::convertible_to<std::size_t>;
};

/// A model that writes its units as a Stack.
template <class M>
concept StackModel = !ModelRecipe<M> && requires {
  typename M::Config;
  requires Real<typename M::scalar>;
  requires !std::is_base_of_v<Module<M>, M>;
  requires model_kind::has_stack<M>();
};

/// Refuses a Module that is no model laid over ranks, once, whatever a program does with it.
template <class M>
void refuse_bare_model() {
  static_assert(sizeof(M) == 0,
                "weft: a Module is trained in a wrapper, which lays it over ranks and gives it its context: DataParallel<Model> "
                "model(mesh, {.width = 64}), or on one rank SingleDevice<Model> model(world.device(), {.width = 64}); see M in "
                "this function's template arguments");
}

/// A model that is one Module, made by M(context, config).
template <class M>
concept ModuleModel = !ModelRecipe<M> && requires {
  typename M::Config;
  requires Real<typename M::scalar>;
  requires std::is_base_of_v<Module<M>, M>;
};
/// One with `auto loss(const auto& batch) const`, which train_step needs.
template <class M>
concept LossModule = ModuleModel<M> && model_kind::has_loss<M>();

/// A model of any kind.
template <class M>
concept AnyModel = ModelRecipe<M> || StackModel<M> || ModuleModel<M>;

template <class M>
struct BatchOf {
  using type = TokenBatch;
};
template <class M>
requires requires { typename M::Batch; }
struct BatchOf<M> {
  using type = typename M::Batch;
};
/// The batches that a model is trained on.
template <class M>
using batch_of_t = typename BatchOf<M>::type;

/// The number by which the loss of a batch is divided: the model's count, else `usual`.
template <class M, class B>
std::size_t count_of(const B& batch, std::size_t usual) {
  if constexpr (requires {
                  { M::count(batch) } -> std::convertible_to<std::size_t>;
                }) {
    return M::count(batch);
  } else {
    static_assert(
        !model_kind::has_count<M>() || std::is_final_v<M>,
        "weft: this model's count cannot be called with its batch: write `static std::size_t count(const Batch& batch)`, "
        "public, the number by which this share's loss is divided once it is summed over ranks; see M in this function's "
        "template arguments");
    return usual;
  }
}
/// Calls the model's own check of a batch, if it has one.
template <class M, class B>
void check_batch_of([[maybe_unused]] const typename M::Config& config, [[maybe_unused]] const B& batch) {
  if constexpr (requires { M::check_batch(config, batch); }) {
    M::check_batch(config, batch);
  } else {
    static_assert(
        !model_kind::has_check_batch<M>() || std::is_final_v<M>,
        "weft: this model's check_batch cannot be called with its config and batch, so nothing would be checked: write "
        "`static void check_batch(const Config& config, const Batch& batch)`, public; see M in this function's template "
        "arguments");
  }
}

/// A batch of another type than the model's.
template <class Given, class M>
concept OtherBatch = !std::is_convertible_v<const Given&, const batch_of_t<M>&>;
template <class M, class F>
using field_for_t = std::remove_const_t<std::conditional_t<std::is_void_v<M>, void, F>>;
template <class M, class Given>
double refuse_batch(const Given&) {
  constexpr bool named = ModelRecipe<M> || requires { typename M::Batch; };
  // As a forward that uses a field of this batch, so that both are one error.
  if constexpr (!named) refuse_field<field_for_t<M, decltype(fields::tokens)>, field_for_t<M, decltype(fields::targets)>>();
  static_assert(
      !named || !OtherBatch<Given, M>,
      "weft: this batch is of another type than the model's: a field is missing, or of other scalars, or they come in "
      "another order: make it as the model's Batch, which is weft::Batch, of tokens, if the model names none; see M and "
      "Given in this function's template arguments");
  return 0;
}

}  // namespace weft::detail
