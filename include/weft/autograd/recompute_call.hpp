// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recomputation of a part of a Module's forward: what the part computes is not kept for backward but computed again there, from
// its inputs. The bits are the same, dropout included.
//
//   auto forward(const auto& x) const {
//     return x + recompute([this](const auto& y) { return down(gelu(up(norm(y)))); }, x);
//   }

#include <tuple>
#include <utility>

#include <weft/autograd/module.hpp>

namespace weft {

namespace detail {

// The second half of a recomputed part's backward.
template <class Context>
struct DeferredTape : TapeStep<Context> {
  explicit DeferredTape(TapePointer<Context> of) : part(std::move(of)) {}
  void apply(Tape<Context>& tape) { part->weights(tape.context()); }
  TapePointer<Context> part;
};

template <class Context, class F, class Y, class... X>
struct RecordedRecompute : TapeStep<Context> {
  RecordedRecompute(const F& function, const Y& y, const Variable<Context, X>&... x)
      : f(function), outputs(y), nodes(x.node()...), values(x.value()...) {}
  void apply(Tape<Context>& tape) {
    if (!outputs.any()) return;
    using Input = ModuleInput<Context, std::tuple<X...>>;
    auto part = make_tape(tape.context(), true);
    typename Input::gradient_type gradients{};
    const auto again = [&](const auto&... x) {
      Input::receive(Input::node(x...), gradients);
      return nodes_of(f(x...));
    };
    const auto results = std::apply(again, Input::make(*part, values));  // what they point to lives in the part's tape
    values = {};
    give(tape.context(), results, outputs.gradient());
    part->backward(tape.context());
    give(tape.context(), nodes, std::move(gradients));
    tape.template defer<DeferredTape<Context>>(std::move(part));
  }
  F f;
  OutputNodes<Y> outputs;
  std::tuple<ValueNode<X>*...> nodes;
  std::tuple<X...> values;
};

}  // namespace detail

/// f(x...), a part of a Module's forward, of which backward keeps the inputs alone and calls f again. f is kept until then: it
/// captures `this`, or what it needs by value.
template <class F, class Context, class... X>
auto recompute(const F& f, const Variable<Context, X>&... x) {
  auto& tape = std::get<0>(std::tie(x...)).tape();
  if (!tape.records()) return f(x...);
  auto unrecorded = detail::make_tape(tape.context(), false);
  auto y = detail::values_of(f(Variable<Context, X>(x.value(), *unrecorded)...));
  using Y = decltype(y);
  auto& node = tape.template record<detail::RecordedRecompute<Context, F, Y, X...>>(f, y, x...);
  return node.outputs.variable(tape, std::move(y));
}

}  // namespace weft
