// SPDX-License-Identifier: Apache-2.0
#pragma once
// The call of a layer with a backward of its own, recorded in a Module's tape: the nodes of its inputs and outputs, which may be
// tensors, tuples or structs, and the step that backward takes. autograd/primitive.hpp makes such calls.

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/child_tape.hpp>
#include <weft/autograd/layer.hpp>
#include <weft/autograd/struct_value.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/engine/asked_parameters.hpp>
#include <weft/engine/child_calls.hpp>

namespace weft::detail {

template <class X, class Device>
gradient_t<X> zero_gradient(Device& device, const Shape& shape) {
  gradient_t<X> zero(device, shape);
  fill_zero(device, zero.data(), zero.size());
  return zero;
}

// The number of Variables that an input of type X becomes in a Module's forward.
template <class X>
inline constexpr std::size_t variables_in = 1;
template <class... X>
inline constexpr std::size_t variables_in<std::tuple<X...>> = (variables_in<X> + ... + 0);

// The values and the nodes of a Variable, or of a tuple or a struct of them.
template <class C, class X>
X values_of(const Variable<C, X>& x) {
  return x.value();
}
template <class... V>
auto values_of(const std::tuple<V...>& x) {
  return std::apply([](const V&... one) { return std::tuple(values_of(one)...); }, x);
}
template <StructOfVariables V>
value_of_t<V> values_of(const V& x) {
  return with_parts(x, [](const auto&... one) { return value_of_t<V>{values_of(one)...}; });
}
template <class C, class X>
ValueNode<X>* nodes_of(const Variable<C, X>& x) {
  return x.node();
}
template <class... V>
auto nodes_of(const std::tuple<V...>& x) {
  return std::apply([](const V&... one) { return std::tuple(nodes_of(one)...); }, x);
}
template <StructOfVariables V>
auto nodes_of(const V& x) {
  return with_parts(x, [](const auto&... one) { return std::tuple(nodes_of(one)...); });
}
template <class Context, class Y>
variable_of_t<Context, Y> constants(Tape& tape, Y&& y) {
  if constexpr (StructOfTensors<Y>)
    return with_parts(y, [&](auto&... one) { return variable_of_t<Context, Y>{constants<Context>(tape, std::move(one))...}; });
  else return {std::move(y), tape};
}
template <class Context, class... Y>
std::tuple<variable_of_t<Context, Y>...> constants(Tape& tape, std::tuple<Y...>&& y) {
  return std::apply(
      [&](Y&... one) { return std::tuple<variable_of_t<Context, Y>...>(constants<Context>(tape, std::move(one))...); }, y);
}
template <class V>
const auto& first_variable(const V& x) {
  if constexpr (is_variable<V>) return x;
  else
    return with_parts(
        x, [](const auto& one, const auto&...) -> const auto& { return first_variable(one); });
}

// Whether there is a node.
template <class X>
bool any_node(const ValueNode<X>* node) {
  return node != nullptr;
}
template <class... Node>
bool any_node(const std::tuple<Node...>& nodes) {
  return std::apply([](const auto&... node) { return (any_node(node) || ...); }, nodes);
}

// Whether a layer that was called on constants has a backward: it asked for a trainable parameter, or keeps numbers that are
// counted in backward and cannot be counted at once. Experts differ between ranks, which must agree.
template <class L, class Context, class Saved>
bool needs_backward(const L& layer, const Context& context, std::size_t asked, std::size_t kept, Saved& saved) {
  const ChildCalls* calls = context.engine.calls;
  if (calls == nullptr || Context::has(ep{}) || calls->asked_trainable() != asked) return true;
  if constexpr (requires { layer.count_at_once(saved); }) layer.count_at_once(saved);
  else return calls->kept_counts() != kept;
  return false;
}

// Adds a gradient to a node, or the parts of a tuple or a struct to the nodes of a tuple. A layer that returns Nothing for real
// numbers, or a gradient for token ids, does not compile.
template <class Context, class X, class G>
void give(const Context& context, ValueNode<X>* node, G&& gradient) {
  if constexpr (std::is_same_v<gradient_t<X>, Nothing> || std::is_same_v<std::remove_cvref_t<G>, Nothing>) {
    require_gradient_of<X, G>();
  } else if (node != nullptr) {
    node->add(context, std::forward<G>(gradient));
  }
}
template <class Context, class... Node>
void give(const Context& context, const std::tuple<Node...>& nodes, Nothing) {
  std::apply([&](const auto&... node) { (detail::give(context, node, Nothing()), ...); }, nodes);
}
template <class Context, class... Node, class G>
void give(const Context& context, const std::tuple<Node...>& nodes, G&& gradients) {
  const auto parts = with_parts(gradients, [](auto&... one) { return std::tie(one...); });
  [&]<std::size_t... I>(std::index_sequence<I...>) { (detail::give(context, std::get<I>(nodes), std::get<I>(parts)), ...); }
  (std::index_sequence_for<Node...>());
}

// The nodes of a layer's output: of a value, or of the parts of a tuple or a struct. Some parts may get no gradient.
template <class Y>
struct OutputNodes : ValueNode<Y> {
  explicit OutputNodes(const Y&) {}
  bool any() const { return bool(*this); }
  auto gradient() { return this->take(); }
  template <class Context>
  Variable<Context, Y> variable(Tape& tape, Y&& y) {
    return {std::move(y), this, tape};
  }
};
// The node of one part. Its gradient is zero if nothing was computed from the part.
template <class Y>
struct PartNode : ValueNode<Y> {
  static constexpr bool real = !std::is_same_v<gradient_t<Y>, Nothing>;
  explicit PartNode(const Y& y) : device(&y.device()), shape(y.shape()) {}
  bool any() const {
    if constexpr (real) return bool(*this);
    else return false;
  }
  gradient_t<Y> gradient() {
    if constexpr (!real) return {};
    else return *this ? this->take() : zero_gradient<Y>(*device, shape);
  }
  template <class Context>
  Variable<Context, Y> variable(Tape& tape, Y&& y) {
    return {std::move(y), this, tape};
  }
  typename Y::device_type* device;
  Shape shape;
};
template <StructOfTensors Y>
struct PartNode<Y> : OutputNodes<Y> {
  using OutputNodes<Y>::OutputNodes;
};
struct MakePartNodes {
  template <class... Y>
  auto operator()(const Y&... y) const {
    return std::tuple<PartNode<Y>...>(PartNode<Y>(y)...);
  }
};
template <class Y>
using part_nodes_t = decltype(with_parts(std::declval<const Y&>(), MakePartNodes()));
// The gradients of the parts as a G.
template <class G, class Nodes>
G gradients_of(Nodes& nodes) {
  return std::apply([](auto&... node) { return G{node.gradient()...}; }, nodes);
}
template <class Context, class V, class Nodes, class Y>
V variables_of(Nodes& nodes, Tape& tape, Y& y) {
  return with_parts(y, [&](auto&... part) {
    return std::apply([&](auto&... node) { return V{node.template variable<Context>(tape, std::move(part))...}; }, nodes);
  });
}
template <class Nodes>
bool any_of(const Nodes& nodes) {
  return std::apply([](const auto&... node) { return (node.any() || ...); }, nodes);
}
template <class... Y>
struct OutputNodes<std::tuple<Y...>> {
  explicit OutputNodes(const std::tuple<Y...>& y) : nodes(with_parts(y, MakePartNodes())) {}
  bool any() const { return any_of(nodes); }
  auto gradient() { return gradients_of<std::tuple<gradient_t<Y>...>>(nodes); }
  template <class Context>
  auto variable(Tape& tape, std::tuple<Y...>&& y) {
    return variables_of<Context, std::tuple<variable_of_t<Context, Y>...>>(nodes, tape, y);
  }
  std::tuple<PartNode<Y>...> nodes;
};
template <StructOfTensors Y>
struct OutputNodes<Y> {
  explicit OutputNodes(const Y& y) : nodes(with_parts(y, MakePartNodes())) {}
  bool any() const { return any_of(nodes); }
  auto gradient() { return gradients_of<gradient_t<Y>>(nodes); }
  template <class Context>
  auto variable(Tape& tape, Y&& y) {
    return variables_of<Context, variable_of_t<Context, Y>>(nodes, tape, y);
  }
  part_nodes_t<Y> nodes;
};

// A layer that backward calls again: a part of the Module, which outlives the step, or a copy of one without members (Gelu()).
template <class L>
class CalledLayer {
 public:
  explicit CalledLayer(const L& layer) : layer_(hold(layer)) {}
  L& operator*() {
    if constexpr (std::is_empty_v<L>) return layer_;
    else return *layer_;
  }

 private:
  static auto hold(const L& layer) {
    if constexpr (std::is_empty_v<L>) return layer;
    else return const_cast<L*>(&layer);
  }
  std::conditional_t<std::is_empty_v<L>, L, L*> layer_;
};

template <class Context, class L, class D>
struct DeferredLayer : TapeStep {
  DeferredLayer(const CalledLayer<L>& of, D&& state) : layer(of), deferred(std::move(state)) {}
  void apply(Tape& tape) { weft::backward_weight(*layer, tape.context().as<Context>(), std::move(deferred)); }
  CalledLayer<L> layer;
  D deferred;
};

/// A layer whose saved state is only its input, or has it as the member `input`: it drops an input that is computed again in
/// backward (autograd/recompute.hpp).
template <class L>
concept SavesInput = requires {
  requires L::saves_input;
};
/// A layer whose backward_input(context, saved, g, others) adds the gradient of its input's other uses, in the same kernel.
template <class L>
concept FusesAddition = requires {
  requires L::fuses_addition;
};

// A layer's call: runs the layer's backward with its saved state.
template <class Context, class L, class Nodes, class Y, class Saved>
struct RecordedLayer : TapeStep {
  RecordedLayer(const L& of, Nodes to, const Y& y, Saved&& state)
      : layer(of), inputs(std::move(to)), outputs(y), saved(std::move(state)) {
    if constexpr (drops_input)
      if (inputs != nullptr && inputs->source != nullptr) saved_input() = {};
  }
  void apply(Tape& tape) {
    if (!outputs.any()) return;
    asked.expect();
    if constexpr (drops_input)
      if (inputs != nullptr && inputs->source != nullptr) saved_input() = inputs->source->again(*inputs->source);
    const Context& context = tape.context().as<Context>();
    auto split = backward_input(context);
    using D = typename decltype(split)::deferred_type;
    detail::give(context, inputs, std::move(split.input_gradient));
    if constexpr (!std::is_same_v<D, Nothing>) tape.defer<DeferredLayer<Context, L, D>>(layer, std::move(split.deferred));
  }
  auto backward_input(const Context& context) {
    if constexpr (FusesAddition<L> && std::is_pointer_v<Nodes>) {  // the layer adds to the input's gradient from its other uses
      using G = typename std::remove_pointer_t<Nodes>::gradient_type;
      return weft::backward_input(*layer, context, std::move(saved), outputs.gradient(), inputs ? inputs->take() : G());
    } else {
      return weft::backward_input(*layer, context, std::move(saved), outputs.gradient());
    }
  }
  auto& saved_input() {
    if constexpr (requires { saved.input; }) return saved.input;
    else return saved;
  }
  static constexpr bool drops_input = SavesInput<L> && std::is_pointer_v<Nodes>;
  CalledLayer<L> layer;
  Nodes inputs;
  OutputNodes<Y> outputs;
  Saved saved;
  AskedParameters asked;
};

// The call of a layer that is no Module: made before the layer's forward, whose result it records.
template <class Context>
class LayerCall {
 public:
  LayerCall(Tape& tape, const void* kind)
      : tape_(&tape),
        child_(tape, kind),
        asked_(calls() ? calls()->asked_trainable() : 0),
        kept_(calls() ? calls()->kept_counts() : 0),
        parameters_(tape.context().engine()) {}

  /// The outputs of `layer` as Variables, given the Result of its forward. `inputs`: the nodes of its first input.
  template <class L, class Nodes, class R>
  auto record(const L& layer, Nodes inputs, R result) {
    using Y = decltype(result.output);
    parameters_.find();
    if constexpr (is_refused<Y> || is_refused<typename decltype(hidden_of<L, Y>())::type>) {
      return AlreadyRefused();
    } else {
      auto outputs = outputs_of(layer, std::move(inputs), std::move(result));
      child_.end();
      return outputs;
    }
  }

 private:
  const ChildCalls* calls() const { return tape_->context().engine().calls; }
  template <class L, class Nodes, class R>
  auto outputs_of(const L& layer, [[maybe_unused]] Nodes inputs, R result) {
    if (!tape_->records() ||
        (!any_node(inputs) && !needs_backward(layer, tape_->context().as<Context>(), asked_, kept_, result.saved)))
      return constants<Context>(*tape_, std::move(result.output));
    auto& node = tape_->record<RecordedLayer<Context, L, Nodes, decltype(result.output), decltype(result.saved)>>(
        layer, std::move(inputs), result.output, std::move(result.saved));
    node.asked = std::move(parameters_);
    return node.outputs.template variable<Context>(*tape_, std::move(result.output));
  }

  Tape* tape_;
  ChildCall child_;
  std::size_t asked_, kept_;
  AskedParameters parameters_;
};

}  // namespace weft::detail
