// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a model (autograd/model.hpp shows one), and error messages for types that are none. Wrappers check the types of
// a model; its functions are checked when a rank builds it, since only then the context is known. A wrong model gives one error
// that names the member.
//
//   static_assert(ModelRecipe<models::Gpt>);

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/forward.hpp>
#include <weft/autograd/model.hpp>
#include <weft/autograd/model_kind.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/core/has_member.hpp>
#include <weft/core/scalar.hpp>

namespace weft::detail {

/// A model that a rank can build under Context, with make_ functions that return M's Front, Block and Back.
template <class M, class Context>
concept BuiltUnder = requires(const Context& context, const typename M::Config& config, const ModelDegrees& degrees,
                              typename M::Front* front) {
  M::check(config, degrees);
  requires std::is_constructible_v<typename M::Front, decltype(M::make_front(context, config))>;
  requires std::is_convertible_v<decltype(M::make_block(context, config, std::size_t())), typename M::Block>;
  requires std::is_constructible_v<typename M::Back, decltype(M::make_back(context, config, front))>;
};

namespace model_check {

WEFT_HAS_MEMBER(blocks)
WEFT_HAS_MEMBER(check)
WEFT_HAS_MEMBER(make_front)
WEFT_HAS_MEMBER(make_block)
WEFT_HAS_MEMBER(make_back)
WEFT_HAS_MEMBER(vocabulary)
WEFT_HAS_MEMBER(sequence)

enum class Types { right, no_model, no_config, no_scalar, scalar, no_front, no_block, no_back, no_blocks, blocks };

template <class M>
constexpr Types fault_of_types() {
  constexpr bool config = requires { typename M::Config; }
  , front = requires { typename M::Front; }
  , block = requires { typename M::Block; }
  , back = requires { typename M::Back; };
  constexpr bool stack = model_kind::has_stack<M>(), module = std::is_base_of_v<Module<M>, M>;
  if constexpr (AnyModel<M>) return Types::right;
  else if constexpr (int(config) + front + block + back + 2 * int(config && (stack || module)) < 2) return Types::no_model;
  else if constexpr (!config) return Types::no_config;
  else if constexpr (!requires { typename M::scalar; }) return Types::no_scalar;
  else if constexpr (!Real<typename M::scalar>) return Types::scalar;
  else if constexpr (!front) return Types::no_front;
  else if constexpr (!block) return Types::no_block;
  else if constexpr (!back) return Types::no_back;
  else return has_blocks<M>() ? Types::blocks : Types::no_blocks;
}

enum class Made {
  right,
  no_check,
  check,
  no_front,
  front,
  front_type,
  no_block,
  block,
  block_type,
  no_back,
  back,
  back_type,
  vocabulary,
  sequence
};

template <class M, class Context>
constexpr Made fault_of_functions() {
  using C = typename M::Config;
  if constexpr (BuiltUnder<M, Context>) {
    if constexpr (!requires(const C& config) {
                    { M::vocabulary(config) } -> std::convertible_to<std::size_t>;
                  } &&
                  has_vocabulary<M>())
      return Made::vocabulary;
    else if constexpr (!requires(const C& config) {
                         { M::sequence(config) } -> std::convertible_to<std::size_t>;
                       } &&
                       has_sequence<M>())
      return Made::sequence;
    else return Made::right;
  } else if constexpr (!requires(const C& config, const ModelDegrees& degrees) { M::check(config, degrees); }) {
    return has_check<M>() ? Made::check : Made::no_check;
  } else if constexpr (!requires(const Context& context, const C& config) { M::make_front(context, config); }) {
    return has_make_front<M>() ? Made::front : Made::no_front;
  } else if constexpr (!requires(const Context& context, const C& config) {
                         requires std::is_constructible_v<typename M::Front, decltype(M::make_front(context, config))>;
                       }) {
    return Made::front_type;
  } else if constexpr (!requires(const Context& context, const C& config) { M::make_block(context, config, std::size_t()); }) {
    return has_make_block<M>() ? Made::block : Made::no_block;
  } else if constexpr (!requires(const Context& context, const C& config) {
                         requires std::is_convertible_v<decltype(M::make_block(context, config, std::size_t())),
                                                        typename M::Block>;
                       }) {
    return Made::block_type;
  } else if constexpr (!requires(const Context& context, const C& config, typename M::Front* front) {
                         M::make_back(context, config, front);
                       }) {
    return has_make_back<M>() ? Made::back : Made::no_back;
  } else {
    return Made::back_type;
  }
}

}  // namespace model_check

/// A stack that a rank can build under Context: its arguments are functions that make layers.
template <class S>
inline constexpr bool makes_layers = false;
template <class... Make>
inline constexpr bool makes_layers<Stack<Make...>> = sizeof...(Make) > 0 && (!std::is_void_v<typename MadeBy<Make>::type> && ...);
template <class M, class Context>
concept StackedUnder = StackModel<M> && requires(const Context& context, const typename M::Config& config) {
  requires makes_layers<decltype(M::stack(context, config))>;
};

/// A model that meets everything a rank needs of it. The optional `vocabulary` and `sequence` are errors too if they are there
/// but cannot be called.
template <class M, class Context>
concept Model = StackedUnder<M, Context> ||
                (ModuleModel<M>&& std::is_constructible_v<M, const Context&, const typename M::Config&>) ||
                (ModelRecipe<M> && model_check::fault_of_functions<M, Context>() == model_check::Made::right);

/// Prints why M's types are not those of a model.
template <class M>
struct RefusedTypes {
  using Types = model_check::Types;
  static constexpr bool said = true;
  static constexpr Types fault = model_check::fault_of_types<M>();
  static_assert(fault != Types::no_model,
                "weft: a wrapper stands around another wrapper or a model: a recipe with Config, Front, Block and Back, such as "
                "models::Gpt; a layer goes into the blocks of a model");
  static_assert(fault != Types::no_config,
                "weft: this model has no Config: write `struct Config { std::size_t width = 64; };` in it, with the sizes that "
                "it is made by; see M in this class's template arguments");
  static_assert(fault != Types::no_scalar,
                "weft: this model has no scalar, the element type that its layers compute in: write `using scalar = float;` (or "
                "bfloat16, float16, double); see M in this class's template arguments");
  static_assert(fault != Types::scalar,
                "weft: this model's scalar is no type in which layers compute: write `using scalar = float;` (or bfloat16, "
                "float16, double); see M in this class's template arguments");
  static_assert(fault != Types::no_front,
                "weft: this model has no Front, the type of the layer that takes tokens: write `using Front = Embedding;`, and "
                "make_front, which returns one; see M in this class's template arguments");
  static_assert(fault != Types::no_block,
                "weft: this model has no Block, the type of the layer that is repeated: write `using Block = Residual<...>;`, "
                "and make_block, which returns one; see M in this class's template arguments");
  static_assert(
      fault != Types::no_back,
      "weft: this model has no Back, the type of the layer that takes the hidden state and targets and returns the loss: write "
      "`using Back = LanguageHead<LayerNorm>;`, and make_back, which returns one; see M in this class's template arguments");
  static_assert(
      fault != Types::no_blocks,
      "weft: this model does not declare its number of blocks: write `static std::size_t blocks(const Config& config) { "
      "return config.layers; }`; see M in this class's template arguments");
  static_assert(fault != Types::blocks,
                "weft: this model's blocks cannot be called with its Config, or returns no number: write `static std::size_t "
                "blocks(const Config& config)`, public; see M in this class's template arguments");
};

/// Prints why a stack cannot be built.
template <class M, class Context>
constexpr void refuse_functions_of_stack() {
  constexpr bool called = requires(const Context& context, const typename M::Config& config) { M::stack(context, config); };
  static_assert(called,
                "weft: this model's stack cannot be called with the context and the config: write `static auto stack(const auto& "
                "context, const Config& config)`, public; see M in this function's template arguments");
  if constexpr (called) {
    constexpr bool stack =
        is_stack<decltype(M::stack(std::declval<const Context&>(), std::declval<const typename M::Config&>()))>;
    static_assert(stack,
                  "weft: this model's stack returns something else than a Stack: write `return Stack([=] { return Stem(context / "
                  "\"stem\"); }, ...)`; see M in this function's template arguments");
    static_assert(
        !stack,
        "weft: a Stack is made of functions that make layers, and one of this model's arguments is something else, such "
        "as a layer: write `[=] { return Stem(context / \"stem\"); }`, or `repeated(count, [=](std::size_t index) { "
        "return ...; })`; see M in this function's template arguments");
  }
}
template <class M, class Context>
constexpr void refuse_functions_of_recipe() {
  using model_check::Made;
  constexpr Made fault = model_check::fault_of_functions<M, Context>();
  static_assert(
      fault != Made::no_check,
      "weft: this model has no check: write `static void check(const Config& config, const ModelDegrees& degrees)`, which throws "
      "LayoutError for degrees that it cannot take; an empty one takes all; see M in this function's template arguments");
  static_assert(fault != Made::check,
                "weft: this model's check cannot be called with its Config and the degrees: write `static void check(const "
                "Config& config, const ModelDegrees& degrees)`, public; see M in this function's template arguments");
  static_assert(fault != Made::no_front,
                "weft: this model has no make_front: write `static Front make_front(const auto& context, const Config& config)`; "
                "see M in this function's template arguments");
  static_assert(fault != Made::front,
                "weft: this model's make_front cannot be called with the context and the config: write `static Front "
                "make_front(const auto& context, const Config& config)`, public; see M in this function's template arguments");
  static_assert(fault != Made::front_type,
                "weft: this model's make_front returns something else than its Front: one of the two is out of date; see M in "
                "this function's template arguments");
  static_assert(fault != Made::no_block,
                "weft: this model has no make_block: write `static Block make_block(const auto& context, const Config& config, "
                "std::size_t index)`; see M in this function's template arguments");
  static_assert(fault != Made::block,
                "weft: this model's make_block cannot be called with the context, the config and the block's index: write "
                "`static Block make_block(const auto& context, const Config& config, std::size_t index)`, public; see M in this "
                "function's template arguments");
  static_assert(fault != Made::block_type,
                "weft: this model's make_block returns something else than its Block: one of the two is out of date; see M in "
                "this function's template arguments");
  static_assert(fault != Made::no_back,
                "weft: this model has no make_back: write `static Back make_back(const auto& context, const Config& config, "
                "Front* front)`, where front is for parameters that both use; see M in this function's template arguments");
  static_assert(
      fault != Made::back,
      "weft: this model's make_back cannot be called with the context, the config and the front: write `static Back "
      "make_back(const auto& context, const Config& config, Front* front)`, public; see M in this function's template arguments");
  static_assert(fault != Made::back_type,
                "weft: this model's make_back returns something else than its Back: one of the two is out of date; see M in this "
                "function's template arguments");
  static_assert(fault != Made::vocabulary,
                "weft: this model's vocabulary cannot be called with its Config, so tokens would not be checked: write `static "
                "std::size_t vocabulary(const Config& config)`, public; see M in this function's template arguments");
  static_assert(fault != Made::sequence,
                "weft: this model's sequence cannot be called with its Config, so lengths would not be checked: write `static "
                "std::size_t sequence(const Config& config)`, public; see M in this function's template arguments");
}

/// Prints why M cannot be built.
template <class M, class Context>
constexpr void refuse_functions_of_model() {
  if constexpr (ModuleModel<M>)
    static_assert(std::is_constructible_v<M, const Context&, const typename M::Config&>,
                  "weft: this Module cannot be made as a model: write the constructor `Own(const auto& context, const Config& "
                  "config)`, public; see M in this function's template arguments");
  else if constexpr (StackModel<M>) return refuse_functions_of_stack<M, Context>();
  else refuse_functions_of_recipe<M, Context>();
}
/// L gives logits of a hidden value X: on tensors, or as a Module on Variables.
template <class L, class Context, class X>
concept LogitsOfTensors = requires(const L& layer, const Context& context, const X& x) {
  layer.logits(context, x);
};
template <class L, class Context, class X>
concept LogitsOfVariables = IsModule<L> && requires(const L& layer, const Variable<Context, X>& x) {
  layer.logits(x);
};
template <class M, class Context, class Last>
concept HasLogits = requires(const typename M::Config& config) {
  M::vocabulary(config);
}
&&(LogitsOfTensors<typename Last::Layer, Context, typename Last::Input> ||
   LogitsOfVariables<typename Last::Layer, Context, typename Last::Input>);
/// Prints why M has no logits.
template <class M>
constexpr void refuse_logits() {
  constexpr bool vocabulary = requires(const typename M::Config& config) { M::vocabulary(config); };
  static_assert(vocabulary,
                "weft: logits of a model that does not declare its vocabulary: write `static std::size_t vocabulary(const "
                "Config& config) { return config.vocabulary; }`; see M in this function's template arguments");
  static_assert(!vocabulary,
                "weft: logits of a model whose Back has none: write `auto logits(const auto& context, const auto& x) const` in "
                "it, which returns [tokens, vocabulary]; see M in this function's template arguments");
}

// Replaces a type that should be a model, so that there is one error.
template <class M>
struct NoModel {
  using scalar = float;
  struct Config {
    template <class... T>
    Config(T&&...) {}
  };
};
template <class M>
requires requires { typename M::Config; }
struct NoModel<M> {
  using scalar = float;
  using Config = typename M::Config;
};

}  // namespace weft::detail
