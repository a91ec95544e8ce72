// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of a model as a unit of the engine: StackUnit (pipeline/stack_unit.hpp) for one type of layer under one type of
// context.
//
//   StackUnitOf<UnitTypes<Inputs, Hidden, Layer, UnitPlace::middle>, Context> unit(make);

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/proof_note.hpp>
#include <weft/context/context.hpp>
#include <weft/engine/asked_parameters.hpp>
#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/stack_unit.hpp>
#include <weft/pipeline/transport.hpp>

namespace weft::detail {

/// The unit of a layer of type U::Layer (UnitTypes) under Context, a StepContext.
template <class U, class Context>
class StackUnitOf : public StackUnit<typename Context::execution_space> {
  using Exec = typename Context::execution_space;
  using Layer = typename U::Layer;
  using Inputs = typename U::BatchInputs;
  using Outcome = typename ResultOf<U, Context>::type;
  using Output = typename Outcome::output_type;
  using Saved = typename Outcome::saved_type;
  using OutputGradient = gradient_t<Output>;
  using Split = typename SplitOf<true, Layer, Context, Saved, OutputGradient>::type;
  using Deferred = typename Split::deferred_type;
  static constexpr bool takes_hidden = U::place == UnitPlace::middle || U::place == UnitPlace::last,
                        returns_loss = U::place == UnitPlace::last || U::place == UnitPlace::only;

 public:
  template <class Make>
  explicit StackUnitOf(Make& make) : layer(make()) {}

  AnyValue inputs(const UnitCall& call) const override {
    if constexpr (U::place == UnitPlace::middle) return AnyValue();
    else if constexpr (U::place == UnitPlace::last) return AnyValue(inputs_of(call).last(call.micro));
    else return AnyValue(inputs_of(call).first(call.micro));
  }

  void forward(const UnitCall& call, AnyValue& inputs, AnyValue& hidden, AnyValue& output, AnyValue* saved) const override {
    [[maybe_unused]] const auto scope = proof_scope(call, true);
    AskedParameters asked;
    if constexpr (!IsModule<Layer>) asked = AskedParameters(context_of(call).engine);
    auto result = forward_of(call, inputs, hidden);
    if constexpr (returns_loss) output = AnyValue(raw(result.output.sum()));
    else if constexpr (std::is_same_v<Output, typename U::Input>) replace(output, std::move(result.output), &output == &hidden);
    else output = AnyValue(std::move(result.output));
    if (!saved) return;
    *saved = AnyValue(std::move(result.saved));
    asked.find();
    asked_ = std::move(asked);
  }

  void backward(const UnitCall& call, AnyValue& gradient, AnyValue& saved, AnyValue* deferred) override {
    [[maybe_unused]] const auto scope = proof_scope(call, false);
    asked_.expect();
    auto split = [&] {
      if constexpr (returns_loss)
        return weft::backward_input(layer, context_of(call), std::move(saved.as<Saved>()),
                                    relabel<OutputGradient>(gradient.as<Tensor<double, Exec>>()));
      else return weft::backward_input(layer, context_of(call), std::move(saved.as<Saved>()), gradient.as<OutputGradient>());
    }();
    saved.reset();
    if constexpr (takes_hidden) {
      using G = gradient_t<typename U::Input>;
      replace(gradient, input_gradient_of<typename U::Input>(std::move(split.input_gradient)),
              !returns_loss && std::is_same_v<G, OutputGradient>);
    } else {
      require_gradient_of<typename Inputs::First, decltype(split.input_gradient)>();
    }
    if (deferred) *deferred = AnyValue(std::move(split.deferred));
    else weft::backward_weight(layer, context_of(call), std::move(split.deferred));
  }

  void backward_weight(const UnitCall& call, AnyValue& deferred) override {
    weft::backward_weight(layer, context_of(call), std::move(deferred.as<Deferred>()));
    deferred.reset();
  }

  bool has_tape() const override { return IsModule<Layer>; }
  const Tape* tape([[maybe_unused]] const AnyValue& saved) const override {
    if constexpr (IsModule<Layer>) return saved.as<Saved>().tape.get();
    else return nullptr;
  }

  UnitTransports<Exec> transports() const override { return {}; }

  bool require_sum(const UnitCall& call, AnyValue& hidden) const override {
    if constexpr (U::place == UnitPlace::last && !says_loss_is_a_sum<Layer>)
      return require_loss_is_a_sum(context_of(call), layer, inputs_of(call), hidden.as<typename U::Input>(),
                                   {.env = call.env, .micro = call.micro, .samples = call.samples});
    else return true;
  }

  Layer layer;
#ifdef WEFT_PROVE_IN_DOUBLE
  std::string proof_name;
  int proof_number = 0;
#endif

 protected:
  static UnitTransports<Exec> transports_of_types() {
    UnitTransports<Exec> all;
    if constexpr (takes_hidden) {
      all.input = &transport_of<Exec, typename U::Input>;
      all.input_gradient = &transport_of<Exec, gradient_t<typename U::Input>>;
    }
    if constexpr (!returns_loss) {
      all.output = &transport_of<Exec, Output>;
      all.output_gradient = &transport_of<Exec, OutputGradient>;
    }
    return all;
  }

 private:
  mutable AskedParameters asked_;  // by a layer that is no Module, in the first step

  // A layer with a hand-written backward computes its input's gradient, whether or not it is used.
  auto forward_of(const UnitCall& call, [[maybe_unused]] AnyValue& inputs, [[maybe_unused]] AnyValue& hidden) const {
    const Context& context = context_of(call);
    if constexpr (!takes_hidden) return weft::forward(layer, context, inputs.as<typename Inputs::First>());
    else if constexpr (U::place == UnitPlace::middle) {
      auto& x = hidden.as<typename U::Input>();
      if constexpr (IsModule<Layer>) return as_module(layer).recorded_call(call.input_gradient, context, x);
      else return weft::forward(layer, context, x);
    } else {
      auto& x = hidden.as<typename U::Input>();
      auto& given = inputs.as<typename Inputs::Last>();
      if constexpr (IsModule<Layer>) return as_module(layer).recorded_call(call.input_gradient, context, x, given);
      else return weft::forward(layer, context, x, given);
    }
  }
#ifdef WEFT_PROVE_IN_DOUBLE
  ProofUnitScope proof_scope(const UnitCall& call, bool forward) const {
    return {context_of(call),    forward,
            proof_name,          proof_number,
            call.env->first_row, std::max(call.env->length, context_of(call).engine.longest),
            call.samples};
  }
#else
  static constexpr Nothing proof_scope(const UnitCall&, bool) { return {}; }
#endif
  static const Context& context_of(const UnitCall& call) { return *static_cast<const Context*>(call.context); }
  static const Inputs& inputs_of(const UnitCall& call) { return *static_cast<const Inputs*>(call.inputs); }
  // In place if `value` holds an X already, so that a chain of equal units allocates nothing for its hidden value.
  template <class X>
  static void replace(AnyValue& value, X&& x, bool holds) {
    if (holds) value.as<X>() = std::move(x);
    else value = AnyValue(std::move(x));
  }
};

/// The same in a pipeline, whose stages send the values between units.
template <class U, class Context>
class PipelineUnit final : public StackUnitOf<U, Context> {
 public:
  using StackUnitOf<U, Context>::StackUnitOf;
  UnitTransports<typename Context::execution_space> transports() const override { return this->transports_of_types(); }
};

/// A layer that the executor never calls: a Module without a loss, for user-written loops.
template <class L, class Exec>
class HeldUnit final : public StackUnit<Exec> {
 public:
  template <class Make>
  explicit HeldUnit(Make& make) : layer(make()) {}
  AnyValue inputs(const UnitCall&) const override { return {}; }
  void forward(const UnitCall&, AnyValue&, AnyValue&, AnyValue&, AnyValue*) const override {}
  void backward(const UnitCall&, AnyValue&, AnyValue&, AnyValue*) override {}
  void backward_weight(const UnitCall&, AnyValue&) override {}
  bool has_tape() const override { return false; }
  const Tape* tape(const AnyValue&) const override { return nullptr; }
  UnitTransports<Exec> transports() const override { return {}; }
  bool require_sum(const UnitCall&, AnyValue&) const override { return true; }

  L layer;
};

/// The layer of a unit, for a caller that depends on the types of the model and of the context: predictions, logits and calls of
/// user-written loops.
template <class U, class Context>
auto& layer_of(StackUnit<typename Context::execution_space>& unit) {
  return static_cast<StackUnitOf<U, step_context_t<Context>>&>(unit).layer;
}
/// The Module of a model that is one Module.
template <class Model, class Context>
Model& module_of(StackUnit<typename Context::execution_space>& unit) {
  if constexpr (LossModule<Model>) return layer_of<typename ModelTypes<Model, Context>::Last, Context>(unit).model;
  else return static_cast<HeldUnit<Model, typename Context::execution_space>&>(unit).layer;
}

}  // namespace weft::detail
