// SPDX-License-Identifier: Apache-2.0
#pragma once
// The types that cross the borders of a model's units, found once for a model and a context: what enters each unit, what it saves
// and defers, and the loss. A repeated unit must be a fixed point of these types. The first unit that cannot follow its neighbour
// is reported in one error, and those after it are not examined.
//
//   using Types = ModelTypes<Model, Context>;
//   Types::sound, Types::Loss, Types::Last::Input

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/layer/batch_inputs.hpp>
#include <weft/layer/field_inputs.hpp>
#include <weft/layer/context.hpp>
#include <weft/layer/layer.hpp>
#include <weft/layer/loss_sum.hpp>
#include <weft/layer/model_check.hpp>
#include <weft/layer/module.hpp>
#include <weft/layer/stack.hpp>

namespace weft::detail {

/// A place in a model: `first` takes the inputs of the batch, `last` takes the hidden value and the inputs, `only` is both.
enum class UnitPlace { first, middle, last, only };

/// Neighbours of one type in a model's stack.
template <class L, bool repeats_>
struct Segment {
  using layer = L;
  static constexpr bool repeats = repeats_;
};
template <class... S>
struct Segments {};

// The result of a layer's backward if the model's forward is sound, else a stand-in: one error is enough.
template <bool sound, class Layer, class Context, class Saved, class G>
struct SplitOf {
  using type = decltype(weft::backward_input(std::declval<Layer&>(), std::declval<const Context&>(), std::declval<Saved>(),
                                             std::declval<const G&>()));
};
template <class Layer, class Context, class Saved, class G>
struct SplitOf<false, Layer, Context, Saved, G> {
  using type = InputGradient<Nothing, Nothing>;
};

/// The types of one unit. X: what enters it, without the inputs of the batch (void for the first).
template <class Inputs, class X, class L, UnitPlace at>
struct UnitTypes {
  using Layer = L;
  using Input = X;
  using BatchInputs = Inputs;
  static constexpr UnitPlace place = at;
};

/// A unit's output, found before the unit is built.
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

/// The segments of a model.
template <class Model, class Context>
struct SegmentsOf {
  using type = Segments<Segment<typename Model::Front, false>, Segment<typename Model::Block, true>,
                        Segment<typename Model::Back, false>>;
};
template <class S>
struct SegmentsOfStack;
template <class... Make>
struct SegmentsOfStack<Stack<Make...>> {
  using type = Segments<Segment<typename MadeBy<Make>::type, is_repeated<Make>>...>;
};
template <class Model, class Context>
requires StackModel<Model>
struct SegmentsOf<Model, Context> : SegmentsOfStack<decltype(Model::stack(std::declval<const Context&>(), std::declval<const typename Model::Config&>()))> {
};

/// A Module's loss as a layer, the only unit of its model.
template <class M>
struct LossOfModule : Module<LossOfModule<M>> {
  template <class Context>
  LossOfModule(const Context& context, const typename M::Config& config) : model(context, config) {}
  auto forward(const auto& batch) const { return model.loss(batch); }
  M model;
};
template <class Model, class Context>
requires ModuleModel<Model>
struct SegmentsOf<Model, Context> {
  using type = Segments<Segment<LossOfModule<Model>, false>>;
};

/// Finds the types of the segments S, the first of which takes an X; `place` is that of the first one.
template <class Context, class Inputs, class X, bool begins, class... S>
struct TypesOf;
template <class Context, class Inputs, class X, bool begins, class S>
struct TypesOf<Context, Inputs, X, begins, S> {
  using Last = UnitTypes<Inputs, X, typename S::layer, begins ? UnitPlace::only : UnitPlace::last>;
  using LastResult = typename ResultOf<Last, Context>::type;
  using Units = std::tuple<Last>;
  /// True if forward compiles; else the compiler has reported the layer whose forward does not.
  static constexpr bool forwards = !is_refused<typename LastResult::output_type>;
  using Opened = void;  // the first repeated unit that does not return what it takes
};
template <class Context, class Inputs, class X, bool begins, class S, class... R>
requires(sizeof...(R) > 0) struct TypesOf<Context, Inputs, X, begins, S, R...> {
  using Unit = UnitTypes<Inputs, X, typename S::layer, begins ? UnitPlace::first : UnitPlace::middle>;
  using Output = typename ResultOf<Unit, Context>::type::output_type;
  static constexpr bool closes = !S::repeats || std::is_same_v<Output, X> || is_refused<Output>;
  // A repeated unit that is refused, or does not close, ends the examination of the others.
  using Hidden = std::conditional_t<S::repeats && !is_refused<Output>, X, Output>;
  using Rest = TypesOf<Context, Inputs, Hidden, false, R...>;
  using Last = typename Rest::Last;
  using LastResult = typename Rest::LastResult;
  using Units = decltype(std::tuple_cat(std::declval<std::tuple<Unit>>(), std::declval<typename Rest::Units>()));
  static constexpr bool forwards = Rest::forwards;
  using Opened = std::conditional_t<!closes, std::pair<X, Output>, typename Rest::Opened>;
};

template <class Context, class Inputs, class S>
struct TypesOfSegments;
template <class Context, class Inputs, class... S>
struct TypesOfSegments<Context, Inputs, Segments<S...>> : TypesOf<Context, Inputs, void, true, S...> {};

/// The inputs of a model's layers under Context.
template <class Model, class Context>
using inputs_of_t = typename InputsOf<batch_of_t<Model>, Context, ModelRecipe<Model>>::type;

template <class Model, class Context>
struct ModelTypes : TypesOfSegments<Context, inputs_of_t<Model, Context>, typename SegmentsOf<Model, Context>::type> {
  using Base = TypesOfSegments<Context, inputs_of_t<Model, Context>, typename SegmentsOf<Model, Context>::type>;
  using Inputs = inputs_of_t<Model, Context>;
  using LastOutput = typename Base::LastResult::output_type;
  static constexpr bool closes = std::is_void_v<typename Base::Opened>, returns_loss = is_loss<LastOutput>;
  /// The model can be built and run; else the compiler has reported why not.
  static constexpr bool sound = Base::forwards && closes && returns_loss;
  using Loss = std::conditional_t<returns_loss, LastOutput, LossSum<typename Context::execution_space>>;
};

/// A unit's output.
template <class U, class Context>
using output_of_t = typename ResultOf<U, Context>::type::output_type;

}  // namespace weft::detail
