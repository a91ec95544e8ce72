// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layers one after the other, and a residual connection around a layer: for models whose layers are a list. Anything else is a
// Module of a few lines (autograd/module.hpp).
//
//   Residual(Sequential(LayerNorm(...), Linear<Column>(...), Gelu{}, Linear<Row>(...)))

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/module.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

/// One layer after the other.
template <class... L>
class Sequential : public Module<Sequential<L...>> {
  static_assert(sizeof...(L) > 0, "weft: Sequential needs at least one layer");

 public:
  explicit Sequential(L... layers) : layers_(std::move(layers)...) {}

  auto forward(const auto& x) const { return after<0>(x); }
  /// An input that is a tuple arrives in parts.
  auto forward(const auto&... x) const { return after<0>(std::tuple(x...)); }

 private:
  template <std::size_t I, class X>
  auto after(const X& x) const {
    if constexpr (I == sizeof...(L) || std::is_base_of_v<detail::AlreadyRefused, X>) return x;
    else return after<I + 1>(call(std::get<I>(layers_), x));
  }
  std::tuple<L...> layers_;
};

namespace detail {
// Refuses, at compile time, an input to which no output can be added.
template <class V>
constexpr bool has_sums() {
  constexpr bool ids = requires { requires std::is_same_v<gradient_t<typename V::tensor_type>, Nothing>; };
  static_assert(
      !ids,
      "weft: Residual adds a layer's output to its input, and this input is not Real (token ids): put the residual after "
      "the table, Sequential(Embedding(...), Residual(...))");
  return !ids;
}
}  // namespace detail

/// x + L(x). A Partial L(x) is brought to x's layout: by an all-reduce, or by a reduce-scatter if x is sharded by rows (sequence
/// parallelism).
template <class L>
class Residual : public Module<Residual<L>> {
 public:
  explicit Residual(L layer) : layer_(std::move(layer)) {}

  template <class V>
  auto forward(const V& x) const {
    if constexpr (detail::has_sums<V>()) return x + to_layout_of(x, call(layer_, x));
    else return detail::AlreadyRefused();
  }

 private:
  L layer_;
};
// A Residual of a Residual is two residuals, not a copy. (The guide is explicit, so `Residual copy = residual` is a copy.)
template <class L>
explicit Residual(Residual<L>) -> Residual<Residual<L>>;

}  // namespace weft
