// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recomputation: saved activations are dropped and computed again in backward, less memory for more work. The results are bitwise
// the same, dropout included (except `selective` on GPUs, where GPT's MLP differs by the rounding of an activation:
// nn/gelu_mlp.hpp).
//
//   models::GptConfig config{.recompute = Recomputation::selective};
//
// The choice is a model's, made when it runs. `full` keeps one input for each block and computes the block twice (a third more
// work). `selective` recomputes cheap outputs: those of norms and of activation functions, each from its input, which is kept
// anyway. Scores and probabilities of attention are never kept (arXiv:2205.05198 calls their recomputation selective), nor are
// dropout masks. Of a GPT block's 16 units of [tokens, width] it saves 6; of a Llama block's 8 units and 3 [tokens, intermediate]
// (with as many key-value heads as heads), 2 and 1.

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

enum class Recomputation { none, selective, full };

/// Keeps only the layer's input and computes forward again in backward; with `active` false, the layer itself.
template <class L>
class Recompute : public Primitive<Recompute<L>> {
 public:
  explicit Recompute(L layer, bool active = true) : layer_(std::move(layer)), active_(active) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if constexpr (!detail::Forwards<L, Context, X>) {
      return detail::refuse_forward<L, Context, X>();
    } else {
      auto result = weft::forward(layer_, context, x);
      Saved<X, typename decltype(result)::saved_type> saved;
      if (active_) saved.input = x;
      else saved.inner.emplace(std::move(result.saved));
      if constexpr (detail::is_refused<decltype(result.output)>) return detail::RefusedResult();
      else return Result{std::move(result.output), std::move(saved)};
    }
  }
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    if (!saved.inner) saved.inner.emplace(weft::forward(layer_, context, saved.input).saved);
    return weft::backward_input(layer_, context, std::move(*saved.inner), g);
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) {
    weft::backward_weight(layer_, context, std::move(deferred));
  }

 private:
  template <class X, class Inner>
  struct Saved {
    X input;
    std::optional<Inner> inner;
  };
  L layer_;
  bool active_;
};
// A Recompute of a Recompute is not its copy: the inner one may be inactive. (The guide is explicit, so `Recompute copy = layer`
// is a copy.)
template <class L>
explicit Recompute(Recompute<L>) -> Recompute<Recompute<L>>;

namespace detail {

// Whether the saved state is the layer's input alone: one handle, or for a Branch several.
template <class Saved, class X>
inline constexpr bool is_input = std::is_same_v<Saved, X>;
template <class... S, class X>
inline constexpr bool is_input<std::tuple<S...>, X> = (is_input<S, X> && ...);

template <class Saved, class X>
void set_input(Saved& saved, const X& x) {
  if constexpr (std::is_same_v<Saved, X>) saved = x;
  else std::apply([&](auto&... part) { (set_input(part, x), ...); }, saved);
}

}  // namespace detail

/// First, then Second, which saves its input alone (Linear, or a Branch of them). With `active`, that input, First's output, is
/// not kept but computed again from First's input: for a First that is cheap and whose input is kept anyway.
template <class First, class Second>
class RecomputeInput : public Primitive<RecomputeInput<First, Second>> {
 public:
  static constexpr bool joins_sums = detail::JoinsSums<First>;
  RecomputeInput(First first, Second second, bool active = true)
      : first_(std::move(first)), second_(std::move(second)), active_(active) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    using Y = typename detail::forward_of_t<First, Context, X>::output_type;
    using Step = detail::forward_of_t<Second, Context, Y>;
    constexpr bool refused = detail::is_refused<typename Step::output_type>,
                   saves_input = detail::is_input<typename Step::saved_type, Y>;
    static_assert(refused || saves_input,
                  "weft: RecomputeInput's second layer must save its input and nothing else, as Linear does");
    if constexpr (refused || !saves_input) return detail::RefusedResult();
    else return second_forward(context, x, weft::forward(first_, context, x));
  }
  template <class Context, class X>
  auto forward_on_sum(const Context& context, const X& x, const X& branch) const {
    auto joined = detail::forward_on_sum(first_, context, x, branch);
    auto result = second_forward(context, joined.sum, std::move(joined.result));
    return SumResult{std::move(joined.sum), std::move(result)};
  }
  template <class Context, class S, class G, class... Others>
  auto backward_input(const Context& context, S saved, const G& g, const Others&... others) {
    if (active_) detail::set_input(saved.second, weft::forward(first_, context, saved.input).output);
    auto second = weft::backward_input(second_, context, std::move(saved.second), g);
    auto first =
        weft::backward_input(first_, context, std::move(saved.first),
                             detail::input_gradient_of<typename S::between_type>(std::move(second.input_gradient)), others...);
    return InputGradient{std::move(first.input_gradient), std::pair{std::move(first.deferred), std::move(second.deferred)}};
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) {
    weft::backward_weight(first_, context, std::move(deferred.first));
    weft::backward_weight(second_, context, std::move(deferred.second));
  }

 private:
  template <class X, class Y, class A, class B>
  struct Saved {
    using between_type = Y;
    X input;
    A first;
    B second;
  };
  // The second layer, of the first one's result for x.
  template <class Context, class X, class R>
  auto second_forward(const Context& context, const X& x, R first) const {
    using Y = typename R::output_type;
    auto second = weft::forward(second_, context, first.output);
    Saved<X, Y, decltype(first.saved), decltype(second.saved)> saved{{}, std::move(first.saved), std::move(second.saved)};
    if (active_) {
      saved.input = x;
      detail::set_input(saved.second, Y());
    }
    return Result{std::move(second.output), std::move(saved)};
  }
  First first_;
  Second second_;
  bool active_;
};

}  // namespace weft
