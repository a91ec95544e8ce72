// SPDX-License-Identifier: Apache-2.0
#pragma once
// The second half of a residual block: a norm of x + branch, beside that sum. LayerNorm and RmsNorm compute both in one kernel,
// which on a GPU saves a launch and one of five passes over the hidden state. In backward a norm adds the gradient of its input's
// other uses in its kernel, wherever it is called.
//
//   auto [y, normed] = add_norm(norm, x, attention(x));   // y = x + attention(x), normed = norm(y)
//   return y + mlp(normed);

#include <type_traits>
#include <utility>

#include <weft/autograd/primitive.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

/// The pair of x + branch and norm(x + branch), in a Module's forward; the norm is a member of the Module. Both terms have one
/// shape (ShapeError) and one placement; the bits are those of the two operations. `recomputed`: backward computes the norm again
/// (Recomputation::selective), and the two are two kernels.
template <class Norm, class Context, class X, class Y>
auto add_norm(const Norm& norm, const Variable<Context, X>& x, const Variable<Context, Y>& branch, bool recomputed = false) {
  if constexpr (!std::is_same_v<X, Y>) {
    (void)(x + branch);  // prints the reason
    return std::pair(detail::AlreadyRefused(), detail::AlreadyRefused());
  } else if constexpr (!detail::FusesAddition<Norm>) {
    auto sum = x + branch;
    auto y = call(norm, sum);
    return std::pair(std::move(sum), std::move(y));
  } else if constexpr (!detail::Forwards<Norm, Context, X>) {
    return std::pair(detail::refuse_forward<Norm, Context, X>().output, detail::AlreadyRefused());
  } else {
    if (recomputed) {
      auto sum = x + branch;
      auto y = recompute([&norm](const auto& of) { return norm(of); }, sum);
      return std::pair(std::move(sum), std::move(y));
    }
    detail::Tape& tape = x.tape();
    const auto same = [](const auto&, const auto& g) { return g; };
    auto from_x = detail::from(x, same);
    auto from_branch = detail::from(branch, same);
    detail::ValueNode<X>* node = nullptr;  // in front of the norm's, whose gradient is a part of the sum's
    if (tape.records() && (from_x.wanted() || from_branch.wanted()))
      node = &tape.record<detail::Recorded<Context, X, decltype(from_x), decltype(from_branch)>>(std::move(from_x),
                                                                                                 std::move(from_branch));
    X sum;
    detail::LayerCall<Context> recording(tape, &detail::layer_kind<Norm>);
    const auto forward = [&] {
      try {
        auto [of, result] = norm.forward_on_sum(x.context(), x.value(), branch.value());
        sum = std::move(of);
        return std::move(result);
      } catch (...) {
        detail::add_layer(norm, detail::Pass::forward);
        throw;
      }
    };
    auto y = recording.record(norm, node, forward());
    return std::pair(Variable<Context, X>(std::move(sum), node, tape), std::move(y));
  }
}

template <class Norm, class X, class Y>
requires(std::is_same_v<X, detail::AlreadyRefused> ||
         std::is_same_v<Y, detail::AlreadyRefused>) auto add_norm(const Norm&, const X&, const Y&, bool = false) {
  return std::pair(detail::AlreadyRefused(), detail::AlreadyRefused());
}

}  // namespace weft
