// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recomputation of a part of a Module's forward: backward computes the part again from its inputs, which costs work and saves
// memory. The bits are the same, dropout included.
//
//   auto forward(const auto& x) const {
//     return x + recompute([this](const auto& y) { return down(gelu(up(norm(y)))); }, x);
//   }
//   up(recompute([this](const auto& y) { return norm(y); }, x));   // backward keeps x alone: Linear drops its input

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/module.hpp>

namespace weft {

/// The activations that backward of a model of weft's computes again. `full` keeps one input for each block and computes the
/// block twice (a third more work). `selective` recomputes cheap outputs: those of norms and of activation functions, each from
/// its input, which is kept anyway. Scores and probabilities of attention are never kept (arXiv:2205.05198 calls their
/// recomputation selective), nor are dropout masks. `selective` saves 6 of a GPT block's 16 units of [tokens, width], and 2 and
/// 1 of a Llama block's 8 units and 3 [tokens, intermediate] (with as many key-value heads as heads). On GPUs, GPT's MLP under
/// `selective` differs from the others by the rounding of an activation (nn/gelu_mlp.hpp).
enum class Recomputation { none, selective, full };

namespace detail {

// The second half of a recomputed part's backward.
struct DeferredTape : TapeStep {
  explicit DeferredTape(TapePointer of) : part(std::move(of)) {}
  void apply(Tape& tape) { part->weights(tape.context()); }
  TapePointer part;
};

struct NoSource {};

// A part f of a forward on x.... It runs again when backward reaches it, or earlier when a layer asks for the value that it
// dropped. The gradients of x are added where those of their other uses are.
template <class Context, class F, class Y, class... X>
struct RecordedRecompute : TapeStep, std::conditional_t<AnyTensor<Y>, ValueSource<Y>, NoSource> {
  RecordedRecompute(Tape& of, const F& function, const Y& y, const Variable<Context, X>&... x)
      : f(function), outputs(y), whole(&of), inputs(std::in_place, x...) {
    if constexpr (AnyTensor<Y>) {
      outputs.source = this;
      this->again = [](ValueSource<Y>& source) {
        auto& step = static_cast<RecordedRecompute&>(source);
        if (!step.part) step.compute();
        return step.value;
      };
    }
  }
  void compute() {
    part = make_tape(whole->context().as<Context>(), true);
    part->set_layer(this->layer_path);
    const auto y = std::apply(
        [&](const Variable<Context, X>&... x) { return f(Variable<Context, X>(x.value(), x.node(), *part)...); }, *inputs);
    results = nodes_of(y);
    if constexpr (AnyTensor<Y>) value = values_of(y);
    inputs.reset();
  }
  void apply(Tape& tape) {
    if (!outputs.any()) return;
    if (!part) compute();
    value = {};
    give(tape.context().as<Context>(), results, outputs.gradient());
    part->backward(tape.context());
    tape.defer<DeferredTape>(std::move(part));
  }
  F f;
  OutputNodes<Y> outputs;
  Tape* whole;
  std::optional<std::tuple<Variable<Context, X>...>> inputs;
  TapePointer part;
  decltype(nodes_of(std::declval<const variable_of_t<Context, Y>&>())) results{};  // they live in `part`
  std::conditional_t<AnyTensor<Y>, Y, Nothing> value;
};

}  // namespace detail

/// f(x...), a part of a Module's forward, of which backward keeps only the inputs and calls f again. f is kept until then: it
/// captures `this`, or its values by copy. A layer that saves its input (Linear, GeluMlp) does not keep f's result either.
template <class F, class Context, class... X>
auto recompute(const F& f, const Variable<Context, X>&... x) {
  detail::Tape& tape = std::get<0>(std::tie(x...)).tape();
  if (!tape.records()) return f(x...);
  auto unrecorded = detail::make_tape(tape.context().as<Context>(), false);
  auto y = detail::values_of(f(Variable<Context, X>(x.value(), *unrecorded)...));
  using Y = decltype(y);
  auto& node = tape.record<detail::RecordedRecompute<Context, F, Y, X...>>(tape, f, y, x...);
  return node.outputs.template variable<Context>(tape, std::move(y));
}

}  // namespace weft
