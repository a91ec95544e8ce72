// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layers made of layers: Sequential, Residual, Fork, Repeat, Recompute, Enter. They write the backward of a composition, so
// only a new primitive writes its own, and they check at compile time that every gradient is placed as the dual of its tensor.
//
//   Residual(Sequential(LayerNorm(...), Linear<Column>(...), Gelu{}, Linear<Row>(...)))

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/nn/layer.hpp>
#include <weft/nn/operations.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// One layer after the other.
template <class... L>
class Sequential {
  static_assert(sizeof...(L) > 0, "weft: Sequential needs at least one layer");

 public:
  explicit Sequential(L... layers) : layers_(std::move(layers)...) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const { return forward_from<0>(context, x); }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) { return backward_from<sizeof...(L) - 1>(context, saved, g); }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) { weights(context, deferred, std::index_sequence_for<L...>{}); }
  void for_each_parameter(auto&& visit) {
    std::apply([&](auto&... layer) { (layer.for_each_parameter(visit), ...); }, layers_);
  }

 private:
  // The input's type travels with what the layer saved, so that its gradient can be checked.
  template <class X, class Saved>
  struct Step {
    using input_type = X;
    Saved saved;
  };

  template <std::size_t I, class Context, class X>
  auto forward_from(const Context& context, const X& x) const {
    auto result = std::get<I>(layers_).forward(context, x);
    using S = typename decltype(result)::saved_type;
    std::tuple<Step<X, S>> mine{Step<X, S>{std::move(result.saved)}};
    if constexpr (I + 1 == sizeof...(L)) {
      return Result{std::move(result.output), std::move(mine)};
    } else {
      auto rest = forward_from<I + 1>(context, result.output);
      return Result{std::move(rest.output), std::tuple_cat(std::move(mine), std::move(rest.saved))};
    }
  }

  template <std::size_t I, class Context, class Saved, class G>
  auto backward_from(const Context& context, Saved& saved, const G& g) {
    auto& step = std::get<I>(saved);
    auto split = weft::backward_input(std::get<I>(layers_), context, std::move(step.saved), g);
    require_gradient_of<typename std::remove_reference_t<decltype(step)>::input_type, decltype(split.input_gradient)>();
    using D = typename decltype(split)::deferred_type;
    std::tuple<D> mine{std::move(split.deferred)};
    if constexpr (I == 0) {
      return InputGradient{std::move(split.input_gradient), std::move(mine)};
    } else {
      auto rest = backward_from<I - 1>(context, saved, split.input_gradient);
      return InputGradient{std::move(rest.input_gradient), std::tuple_cat(std::move(rest.deferred), std::move(mine))};
    }
  }

  template <class Context, class Deferred, std::size_t... I>
  void weights(const Context& context, Deferred& deferred, std::index_sequence<I...>) {
    (weft::backward_weight(std::get<I>(layers_), context, std::move(std::get<I>(deferred))), ...);
  }

  std::tuple<L...> layers_;
};

/// x -> (L(x), ...), a tuple; the gradients are added.
template <class... L>
class Fork {
  static_assert(sizeof...(L) > 0, "weft: Fork needs at least one layer");

 public:
  explicit Fork(L... layers) : layers_(std::move(layers)...) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return forward_all(context, x, std::index_sequence_for<L...>{});
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    return backward_all(context, saved, g, std::index_sequence_for<L...>{});
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) { weights(context, deferred, std::index_sequence_for<L...>{}); }
  void for_each_parameter(auto&& visit) {
    std::apply([&](auto&... layer) { (layer.for_each_parameter(visit), ...); }, layers_);
  }

 private:
  // Braced lists: they are evaluated from left to right, so that collectives keep their order.
  template <class Context, class X, std::size_t... I>
  auto forward_all(const Context& context, const X& x, std::index_sequence<I...>) const {
    std::tuple<decltype(std::get<I>(layers_).forward(context, x))...> parts{std::get<I>(layers_).forward(context, x)...};
    using Outputs = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::output_type...>;
    using Saved = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::saved_type...>;
    return Result<Outputs, Saved>{Outputs{std::move(std::get<I>(parts).output)...}, Saved{std::move(std::get<I>(parts).saved)...}};
  }
  template <class Context, class Saved, class G, std::size_t... I>
  auto backward_all(const Context& context, Saved& saved, const G& g, std::index_sequence<I...>) {
    std::tuple<decltype(weft::backward_input(std::get<I>(layers_), context, std::move(std::get<I>(saved)), std::get<I>(g)))...> parts{
        weft::backward_input(std::get<I>(layers_), context, std::move(std::get<I>(saved)), std::get<I>(g))...};
    auto sum = std::get<0>(parts).input_gradient;
    ((I > 0 ? void(sum = add(sum, std::move(std::get<I>(parts).input_gradient))) : void()), ...);
    using Deferred = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::deferred_type...>;
    return InputGradient<decltype(sum), Deferred>{std::move(sum), Deferred{std::move(std::get<I>(parts).deferred)...}};
  }
  template <class Context, class Deferred, std::size_t... I>
  void weights(const Context& context, Deferred& deferred, std::index_sequence<I...>) {
    (weft::backward_weight(std::get<I>(layers_), context, std::move(std::get<I>(deferred))), ...);
  }

  std::tuple<L...> layers_;
};

/// x + L(x). A Partial L(x) is brought home to x's layout: an all-reduce, or a reduce-scatter where x is sharded by rows
/// (sequence parallelism).
template <class L>
class Residual {
 public:
  explicit Residual(L layer) : layer_(std::move(layer)) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    auto result = layer_.forward(context, x);
    using R = decltype(result);
    return Result{add(x, to_layout_of<X>(context, std::move(result.output))), Saved<typename R::output_type, typename R::saved_type>{std::move(result.saved)}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    auto split = weft::backward_input(layer_, context, std::move(saved.inner), to_layout_of<gradient_t<typename Saved::output_type>>(context, g));
    using D = typename decltype(split)::deferred_type;
    auto sum = add(g, std::move(split.input_gradient));
    return InputGradient<G, D>{std::move(sum), std::move(split.deferred)};
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) { weft::backward_weight(layer_, context, std::move(deferred)); }
  void for_each_parameter(auto&& visit) { layer_.for_each_parameter(visit); }

 private:
  template <class Y, class Inner>
  struct Saved {
    using output_type = Y;
    Inner inner;
  };
  L layer_;
};

/// The same kind of layer, one after the other; its output must lie as its input does.
template <class L>
class Repeat {
 public:
  explicit Repeat(std::vector<L> layers) : layers_(std::move(layers)) {}

  template <class Context, class X>
  auto forward(const Context& context, X x) const {
    using R = forward_t<L, Context, X>;
    static_assert(std::is_same_v<typename R::output_type, X>,
                  "weft: a repeated layer must return what it takes (same placement): wrap its layers in Residual, or bring its output back with "
                  "to_layout_of<X>");
    std::vector<typename R::saved_type> saved;
    saved.reserve(layers_.size());
    for (const L& layer : layers_) {
      auto result = layer.forward(context, x);
      x = std::move(result.output);
      saved.push_back(std::move(result.saved));
    }
    return Result{std::move(x), std::move(saved)};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, std::vector<Saved> saved, G g) {
    using D = typename decltype(weft::backward_input(layers_[0], context, std::move(saved[0]), g))::deferred_type;
    std::vector<D> deferred(layers_.size());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      auto split = weft::backward_input(layers_[i], context, std::move(saved[i]), g);
      g = std::move(split.input_gradient);
      deferred[i] = std::move(split.deferred);
    }
    return InputGradient{std::move(g), std::move(deferred)};
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, std::vector<Deferred> deferred) {
    for (std::size_t i = layers_.size(); i-- > 0;) weft::backward_weight(layers_[i], context, std::move(deferred[i]));
  }
  void for_each_parameter(auto&& visit) {
    for (L& layer : layers_) layer.for_each_parameter(visit);
  }

 private:
  std::vector<L> layers_;
};

/// Keeps only the input and computes forward again in backward: less memory, one more forward. Bitwise the same result,
/// dropout included.
template <class L>
class Recompute {
 public:
  explicit Recompute(L layer) : layer_(std::move(layer)) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const { return Result{layer_.forward(context, x).output, x}; }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    return weft::backward_input(layer_, context, layer_.forward(context, x).saved, g);
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) { weft::backward_weight(layer_, context, std::move(deferred)); }
  void for_each_parameter(auto&& visit) { layer_.for_each_parameter(visit); }

 private:
  L layer_;
};

/// Brings x to Replicated on A once, so that several column-parallel layers share one all-reduce in backward.
template <Axis A>
struct Enter {
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const { return Result{to<Replicated<A>>(context, x), std::type_identity<X>{}}; }
  template <class Context, class X, class G>
  auto backward(const Context& context, std::type_identity<X>, const G& g) const { return to_layout_of<gradient_t<X>>(context, g); }
  void for_each_parameter(auto&&) {}
};

}  // namespace weft
