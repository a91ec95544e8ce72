// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer on a sum that has other uses: the second half of a residual block, whose input is x + the first half's result. A layer
// that begins with a norm computes the sum in the norm's kernel, which on a GPU saves a launch and one of five passes over the
// hidden state. In backward nothing is to be written: a norm adds the gradient of its input's other uses wherever it is called.
//
//   auto [y, inside] = call_on_sum(mlp, x, to_layout_of(x, attention(x)));   // y = x + ..., inside = mlp(y)
//   return y + to_layout_of(y, inside);

#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

/// The pair of x + branch and layer(x + branch), in a Module's forward; the layer must be a part of the Module. Both terms have
/// one shape (ShapeError) and are placed alike, as the layer takes its input; the bits are those of the two operations.
template <class L, class Context, class X, class Y>
auto call_on_sum(const L& layer, const Variable<Context, X>& x, const Variable<Context, Y>& branch) {
  if constexpr (!std::is_same_v<X, Y>) {
    (void)(x + branch);  // says why
    return std::pair(detail::AlreadyRefused(), detail::AlreadyRefused());
  } else if constexpr (!detail::JoinsSums<L>) {
    auto sum = x + branch;
    auto y = call(layer, sum);
    return std::pair(std::move(sum), std::move(y));
  } else if constexpr (!detail::Forwards<L, Context, X>) {
    return std::pair(detail::refuse_forward<L, Context, X>().output, detail::AlreadyRefused());
  } else {
    auto& tape = x.tape();
    const auto same = [](const auto&, const auto& g) { return g; };
    auto from_x = detail::from(x, same);
    auto from_branch = detail::from(branch, same);
    detail::ValueNode<X>* node = nullptr;  // in front of the layer's, whose gradient is a part of the sum's
    if (tape.records() && (from_x.wanted() || from_branch.wanted()))
      node = &tape.template record<detail::Recorded<Context, X, decltype(from_x), decltype(from_branch)>>(std::move(from_x),
                                                                                                          std::move(from_branch));
    X sum;
    const auto forward = [&] {
      auto joined = detail::forward_on_sum(layer, tape.context(), x.value(), branch.value());
      sum = std::move(joined.sum);
      return std::move(joined.result);
    };
    auto y = detail::as_child<L>(tape, [&] { return detail::call_layer(layer, tape, node, forward); });
    return std::pair(Variable<Context, X>(std::move(sum), node, tape), std::move(y));
  }
}

template <class L, class X, class Y>
requires(std::is_same_v<X, detail::AlreadyRefused> ||
         std::is_same_v<Y, detail::AlreadyRefused>) auto call_on_sum(const L&, const X&, const Y&) {
  return std::pair(detail::AlreadyRefused(), detail::AlreadyRefused());
}

}  // namespace weft
