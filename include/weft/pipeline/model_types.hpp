// SPDX-License-Identifier: Apache-2.0
#pragma once
// The types that cross the boundaries of a model's units, computed once for a model and a context: each unit's input, its saved
// and deferred values, and the loss. A repeated unit must return the type that it takes. One error reports the first unit that
// does not fit its neighbour; later units are not examined.
//
//   using Types = ModelTypes<Model, Context>;
//   Types::sound, Types::Loss, Types::Last::Input

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/loss_sum.hpp>
#include <weft/autograd/model_check.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/autograd/struct_value.hpp>
#include <weft/context/context.hpp>
#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/field_inputs.hpp>
#include <weft/pipeline/loss_check.hpp>

namespace weft::detail {

/// A unit's place in a model: `first` takes the batch's inputs, `last` takes the hidden value and the inputs, `only` is both.
enum class UnitPlace { first, middle, last, only };

/// Neighbouring units of one type in a model's stack. `stacked`: the model is written as a Stack.
template <class L, bool repeats_, bool stacked_ = false>
struct Segment {
  using layer = L;
  static constexpr bool repeats = repeats_, stacked = stacked_;
};
template <class... S>
struct Segments {};

// The result of a layer's backward if the model's forward is valid, else a stand-in, so that only one error is printed.
template <bool sound, class Layer, class Context, class Saved, class G>
struct SplitOf {
  using type = decltype(weft::backward_input(std::declval<Layer&>(), std::declval<const Context&>(), std::declval<Saved>(),
                                             std::declval<const G&>()));
};
template <class Layer, class Context, class Saved, class G>
struct SplitOf<false, Layer, Context, Saved, G> {
  using type = InputGradient<Nothing, Nothing>;
};

/// The types of one unit. X: its input without the batch's inputs (void for the first unit).
template <class Inputs, class X, class L, UnitPlace at>
struct UnitTypes {
  using Layer = L;
  using Input = X;
  using BatchInputs = Inputs;
  static constexpr UnitPlace place = at;
};

/// A unit's output type, computed before the unit is built.
template <class U, class Context>
struct ResultOf {
  using type = forward_of_t<typename U::Layer, Context, typename U::Input>;
};
template <class Inputs, class X, class L, class Context>
struct ResultOf<UnitTypes<Inputs, X, L, UnitPlace::first>, Context> {
  using type = forward_of_t<L, Context, typename Inputs::First>;
};
template <class Inputs, class X, class L, class Context>
struct ResultOf<UnitTypes<Inputs, X, L, UnitPlace::only>, Context> {
  using type = forward_of_t<L, Context, typename Inputs::First>;
};
template <class Inputs, class X, class L, class Context>
struct ResultOf<UnitTypes<Inputs, X, L, UnitPlace::last>, Context> {
  using type = forward_of_t<L, Context, X, typename Inputs::Last>;
};

// True if a Module's forward takes the parts of X, and `Inputs` of the batch unless void.
template <class L, class Context, class X, class... Inputs>
inline constexpr bool module_takes = takes_variables<L, variable_of_t<Context, X>, Variable<Context, Inputs>...>();
template <class L, class Context, class... X, class... Inputs>
inline constexpr bool module_takes<L, Context, std::tuple<X...>, Inputs...> =
    takes_variables<L, variable_of_t<Context, X>..., Variable<Context, Inputs>...>();
/// True if the forward of L, a unit of a stack after the first, takes an X (and `Inputs` for the last unit).
template <class L, class Context, class X, class... Inputs>
constexpr bool takes_hidden() {
  if constexpr (is_refused<X>) return true;  // the unit before was reported
  else if constexpr (std::is_base_of_v<Module<L>, L>) return module_takes<L, Context, X, Inputs...>;
  else return requires(const L& layer, const Context& context, const X& x, const Inputs&... inputs) {
      layer.forward(context, x, inputs...);
    };
}
/// Refuses neighbours of a stack that do not share a hidden type.
template <class Before, class After, class Hidden>
constexpr auto refuse_neighbours() {  // auto: an unevaluated use prints the error, too
  static_assert(
      std::is_void_v<After>,
      "weft: two neighbouring units of this stack do not share a hidden type: the forward of After cannot be called with the "
      "result of Before (the last unit: and with the inputs of the batch): a unit takes one tensor or struct, or as many as "
      "the std::tuple that the unit before it returns has; see Before, After and Hidden in this function's template arguments");
  return RefusedResult();
}
/// The result type of a unit, if the unit takes its predecessor's result.
template <class U, class Context, class Before>
auto result_behind() {
  using L = typename U::Layer;
  using X = typename U::Input;
  if constexpr (U::place == UnitPlace::last) {
    if constexpr (!takes_hidden<L, Context, X, typename U::BatchInputs::Last>()) return refuse_neighbours<Before, L, X>();
    else return std::type_identity<typename ResultOf<U, Context>::type>();
  } else if constexpr (U::place == UnitPlace::middle) {
    if constexpr (!takes_hidden<L, Context, X>()) return refuse_neighbours<Before, L, X>();
    else return std::type_identity<typename ResultOf<U, Context>::type>();
  } else {
    return std::type_identity<typename ResultOf<U, Context>::type>();
  }
}
template <class R>
struct ResultBehind {
  using type = R;
};
template <class R>
struct ResultBehind<std::type_identity<R>> {
  using type = R;
};
template <class S, class U, class Context, class Before>
struct CheckedResult : ResultOf<U, Context> {};
template <class S, class U, class Context, class Before>
requires(S::stacked) struct CheckedResult<S, U, Context, Before> : ResultBehind<decltype(result_behind<U, Context, Before>())> {
};

template <class Model, class Context>
struct SegmentsOf {
  using type =
      Segments<Segment<typename Model::Front, false>, Segment<typename Model::Block, true>, Segment<typename Model::Back, false>>;
};
template <class S>
struct SegmentsOfStack;
template <class... Make>
struct SegmentsOfStack<Stack<Make...>> {
  using type = Segments<Segment<typename MadeBy<Make>::type, is_repeated<Make>, true>...>;
};
template <class Model, class Context>
requires StackModel<Model>
struct SegmentsOf<Model, Context> : SegmentsOfStack<decltype(Model::stack(std::declval<const constructor_context_t<Context>&>(),
                                                                          std::declval<const typename Model::Config&>()))> {
};

// As BesideForward (autograd/module.hpp), for losses.
template <class M, class B>
struct BesideLoss : M {
  using M::loss;
  NotCallable loss(each_to<B, AnyArgument>) const;
};
template <class M, class B>
constexpr bool loss_takes() {
  if constexpr (std::is_final_v<M>) return true;
  else return !requires(const BesideLoss<M, B>& model, const B& batch) {
      requires std::is_same_v<decltype(model.loss(batch)), NotCallable>;
    };
}

/// A Module's loss as a layer, the only unit of its model.
template <class M>
struct LossOfModule : Module<LossOfModule<M>> {
  template <class Context>
  LossOfModule(const Context& context, const typename M::Config& config) : model(context, config) {}
  template <class B>
  auto forward(const B& batch) const {
    constexpr bool tensors = refuse_tensor_forward<M>(), changes = forward_changes<B>();
    constexpr bool takes = [] {
      if constexpr (tensors || changes) return true;
      else return loss_takes<M, B>();
    }();
    static_assert(takes,
                  "weft: this Module's loss cannot be called with the fields of its batch: write `auto loss(const auto& batch) "
                  "const`, public, of this one argument; see M in this class's template arguments");
    static_assert(!changes,
                  "weft: this Module's forward is not const: several micro-batches may be in flight, so a forward changes no "
                  "member: write `auto forward(const auto& x) const`; see M in this class's template arguments");
    if constexpr (tensors || changes) return AlreadyRefused();
    else if constexpr (takes && requires { model.loss(batch); }) {
      using Loss = decltype(model.loss(batch));
      constexpr bool plain = std::is_void_v<Loss> || std::is_arithmetic_v<Loss>;
      static_assert(
          !plain,
          "weft: this Module's loss returns a number or nothing: it is recorded for backward, so it returns the loss as "
          "it is: `auto loss(const auto& batch) const { return mse(forward(batch[x]), batch[y]); }`; train_step "
          "returns the number; see M in this class's template arguments");
      if constexpr (plain) return AlreadyRefused();
      else return model.loss(batch);
    } else {
      return AlreadyRefused();  // if it takes the batch, the compiler has reported the error in its body
    }
  }
  M model;

 private:
  // True if the forward is not const when called with the batch's first field.
  template <class B>
  static constexpr bool forward_changes() {
    if constexpr (requires { typename B::tensor_type; } && B::tensor_type::count > 0) {
      using Fields = typename B::tensor_type;
      using First = Variable<typename B::context_type, typename Fields::template tensor_t<0>>;
      return forward_is_not_const<M, First>();
    } else {
      return false;
    }
  }
};
template <class M>
inline constexpr bool says_loss_is_a_sum<LossOfModule<M>> = says_loss_is_a_sum<M>;
template <class Model, class Context>
requires ModuleModel<Model>
struct SegmentsOf<Model, Context> {
  using type = Segments<Segment<LossOfModule<Model>, false>>;
};

/// Computes the types of the segments S. The first segment takes an X from the layer Before (void: it is the model's first).
template <class Context, class Inputs, class X, class Before, class... S>
struct TypesOf;
template <class Context, class Inputs, class X, class Before, class S>
struct TypesOf<Context, Inputs, X, Before, S> {
  static constexpr bool begins = std::is_void_v<Before>;
  using Last = UnitTypes<Inputs, X, typename S::layer, begins ? UnitPlace::only : UnitPlace::last>;
  using LastResult = typename CheckedResult<S, Last, Context, Before>::type;
  using Units = std::tuple<Last>;
  /// True if forward compiles; else the compiler has reported the layer whose forward does not.
  static constexpr bool forwards = !is_refused<typename LastResult::output_type>;
  using Opened = void;  // the first repeated unit whose result has another type than its input
};
template <class Context, class Inputs, class X, class Before, class S, class... R>
requires(sizeof...(R) > 0) struct TypesOf<Context, Inputs, X, Before, S, R...> {
  static constexpr bool begins = std::is_void_v<Before>;
  using Unit = UnitTypes<Inputs, X, typename S::layer, begins ? UnitPlace::first : UnitPlace::middle>;
  using Output = typename decltype(hidden_of<typename S::layer,
                                             typename CheckedResult<S, Unit, Context, Before>::type::output_type>())::type;
  static constexpr bool closes = !S::repeats || std::is_same_v<Output, X> || is_refused<Output>;
  // A refused unit ends the examination, as does a unit of a stack that does not return its input type.
  using Hidden =
      std::conditional_t<!closes && S::stacked, AlreadyRefused, std::conditional_t<S::repeats && !is_refused<Output>, X, Output>>;
  using Rest = TypesOf<Context, Inputs, Hidden, typename S::layer, R...>;
  using Last = typename Rest::Last;
  using LastResult = typename Rest::LastResult;
  using Units = decltype(std::tuple_cat(std::declval<std::tuple<Unit>>(), std::declval<typename Rest::Units>()));
  static constexpr bool forwards = Rest::forwards || (!closes && S::stacked);
  using Opened = std::conditional_t<!closes, std::pair<X, Output>, typename Rest::Opened>;
};

template <class Context, class Inputs, class S>
struct TypesOfSegments;
template <class Context, class Inputs, class... S>
struct TypesOfSegments<Context, Inputs, Segments<S...>> : TypesOf<Context, Inputs, void, void, S...> {};

/// The inputs of a model's layers under Context, any context of the model.
template <class Model, class Context>
using inputs_of_t = typename InputsOf<batch_of_t<Model>, step_context_t<Context>, ModelRecipe<Model>>::type;

template <class Model, class Context>
struct TypesOfModel : TypesOfSegments<Context, inputs_of_t<Model, Context>, typename SegmentsOf<Model, Context>::type> {
  using Base = TypesOfSegments<Context, inputs_of_t<Model, Context>, typename SegmentsOf<Model, Context>::type>;
  using Inputs = inputs_of_t<Model, Context>;
  using LastOutput = typename Base::LastResult::output_type;
  static constexpr bool closes = std::is_void_v<typename Base::Opened>, returns_loss = is_loss<LastOutput>;
  /// The model can be built and run; else the compiler has reported why not.
  static constexpr bool sound = Base::forwards && closes && returns_loss;
  using Loss = std::conditional_t<returns_loss, LastOutput, LossSum<typename Context::execution_space>>;
};

/// The types of a model under Context, any context of the model.
template <class Model, class Context>
using ModelTypes = TypesOfModel<Model, step_context_t<Context>>;

}  // namespace weft::detail
