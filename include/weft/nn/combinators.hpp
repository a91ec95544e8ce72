// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layers made of layers: Sequential, Residual, Branch, Repeat, EnterParallelRegion. They derive the backward of a composition, so
// that only a new primitive writes its own, and they check at compile time that every gradient is placed as the dual of its
// tensor.
//
//   Residual(Sequential(LayerNorm(...), Linear<Column>(...), Gelu{}, Linear<Row>(...)))

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/struct_value.hpp>
#include <weft/core/text.hpp>
#include <weft/nn/recompute.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

// Backward consumes the saved state: it is taken by reference and moved once, into the layer it belongs to.
template <class Saved>
constexpr void require_given_away() {
  static_assert(!std::is_reference_v<Saved>, "weft: backward uses up what forward saved: hand it over with std::move(saved)");
}

/// The saved or deferred state of a chain of layers: the first layer's, then that of the others. The input's type is kept so that
/// its gradient can be checked.
template <class X, class First, class Rest>
struct SavedPair {
  using input_type = X;
  First first;
  [[no_unique_address]] Rest rest;

#if !defined(__CUDACC__)  // with these, which save the host compiler time, the device compiler takes 20 GB
  SavedPair() = default;
  SavedPair(First&& f, Rest&& r) noexcept : first(std::move(f)), rest(std::move(r)) {}
  // Out of line: by the end of a block each of them moves a dozen tensors, and each is used wherever a layer passes its state on.
  WEFT_OUT_OF_LINE SavedPair(SavedPair&& other) noexcept : first(std::move(other.first)), rest(std::move(other.rest)) {}
  WEFT_OUT_OF_LINE SavedPair& operator=(SavedPair&& other) noexcept {
    first = std::move(other.first);
    rest = std::move(other.rest);
    return *this;
  }
  WEFT_OUT_OF_LINE ~SavedPair() {}
#endif
};

/// Layers one after the other, as nested pairs: tuples cost the compiler several times as much.
template <class... L>
struct Chain {};
template <class First, class... L>
struct Chain<First, L...> {
  explicit Chain(First&& f, L&&... l) : first(std::move(f)), rest(std::move(l)...) {}
  Chain(const Chain&) = default;
  WEFT_COLD Chain(Chain&& other) noexcept : first(std::move(other.first)), rest(std::move(other.rest)) {}
  Chain& operator=(const Chain&) = default;
  Chain& operator=(Chain&&) noexcept = default;
  WEFT_COLD ~Chain() {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if constexpr (!Forwards<First, Context, X>) {
      return refuse_forward<First, Context, X>();
    } else {
      return rest_forward<X>(context, weft::forward(first, context, x));
    }
  }
  template <class Context, class X>
  auto forward_on_sum(const Context& context, const X& x, const X& branch) const {
    auto joined = detail::forward_on_sum(first, context, x, branch);
    return SumResult{std::move(joined.sum), rest_forward<X>(context, std::move(joined.result))};
  }
  template <class Context, class Saved, class G, class... Others>
  auto backward_input(const Context& context, Saved& saved, const G& g, const Others&... others) {
    if constexpr (sizeof...(L) == 0) {
      return first_backward<Nothing>(context, saved, g, {}, others...);
    } else {
      auto later = rest.backward_input(context, saved.rest, g);
      return first_backward(context, saved, later.input_gradient, std::move(later.deferred), others...);
    }
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred& deferred) {
    weft::backward_weight(first, context, std::move(deferred.first));
    if constexpr (sizeof...(L) > 0) rest.backward_weight(context, deferred.rest);
  }

  First first;
  [[no_unique_address]] Chain<L...> rest;

 private:
  // The layers behind the first, of its result for an X.
  template <class X, class Context, class R>
  auto rest_forward(const Context& context, R result) const {
    using S = typename R::saved_type;
    if constexpr (is_refused<decltype(result.output)>) {
      return RefusedResult();
    } else if constexpr (sizeof...(L) == 0) {
      return Result{std::move(result.output), SavedPair<X, S, Nothing>{std::move(result.saved), {}}};
    } else if constexpr (is_refused<typename decltype(hidden_of<First, decltype(result.output)>())::type>) {
      return RefusedResult();
    } else {
      auto others = rest.forward(context, result.output);
      using O = typename decltype(others)::saved_type;
      if constexpr (is_refused<O>) return RefusedResult();
      else return Result{std::move(others.output), SavedPair<X, S, O>{std::move(result.saved), std::move(others.saved)}};
    }
  }
  template <class R, class Context, class Saved, class G, class... Others>
  auto first_backward(const Context& context, Saved& saved, const G& g, R&& later, const Others&... others) {
    auto split = weft::backward_input(first, context, std::move(saved.first), g, others...);
    using X = typename Saved::input_type;
    using D = typename decltype(split)::deferred_type;
    return InputGradient{detail::input_gradient_of<X>(std::move(split.input_gradient)),
                         SavedPair<X, D, R>{std::move(split.deferred), std::move(later)}};
  }
};

}  // namespace detail

/// One layer after the other.
template <class... L>
class Sequential : public Primitive<Sequential<L...>> {
  static_assert(sizeof...(L) > 0, "weft: Sequential needs at least one layer");

 public:
  static constexpr bool joins_sums = detail::JoinsSums<std::tuple_element_t<0, std::tuple<L...>>>;
  explicit Sequential(L... layers) : layers_(std::move(layers)...) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return layers_.forward(context, x);
  }
  template <class Context, class X>
  auto forward_on_sum(const Context& context, const X& x, const X& branch) const {
    return layers_.forward_on_sum(context, x, branch);
  }
  template <class Context, class Saved, class G, class... Others>
  auto backward_input(const Context& context, Saved&& saved, const G& g, const Others&... others) {
    detail::require_given_away<Saved>();
    return layers_.backward_input(context, saved, g, others...);
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred&& deferred) {
    detail::require_given_away<Deferred>();
    layers_.backward_weight(context, deferred);
  }

 private:
  detail::Chain<L...> layers_;
};

/// x -> (L(x), ...), a tuple; the gradients are added. If x has no gradient (token ids), all branches return Nothing.
template <class... L>
class Branch : public Primitive<Branch<L...>> {
  static_assert(sizeof...(L) > 0, "weft: Branch needs at least one layer");

 public:
  explicit Branch(L... layers) : layers_(std::move(layers)...) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if constexpr ((detail::Forwards<L, Context, X> && ...)) return forward_all(context, x, std::index_sequence_for<L...>{});
    else return ((void)detail::ForwardOf<L, Context, X>(), ...), detail::RefusedResult();
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    return backward_all(context, saved, g, std::index_sequence_for<L...>{});
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) {
    weights(context, deferred, std::index_sequence_for<L...>{});
  }

 private:
  // Braced lists: they are evaluated from left to right, so that collectives keep their order.
  template <class Context, class X, std::size_t... I>
  auto forward_all(const Context& context, const X& x, std::index_sequence<I...>) const {
    std::tuple<decltype(weft::forward(std::get<I>(layers_), context, x))...> parts{
        weft::forward(std::get<I>(layers_), context, x)...};
    using Outputs = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::output_type...>;
    using Saved = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::saved_type...>;
    if constexpr ((detail::is_refused<typename std::tuple_element_t<I, decltype(parts)>::output_type> || ...))
      return detail::RefusedResult();
    else
      return Result<Outputs, Saved>{Outputs{std::move(std::get<I>(parts).output)...},
                                    Saved{std::move(std::get<I>(parts).saved)...}};
  }
  template <class Context, class Saved, class G, std::size_t... I>
  auto backward_all(const Context& context, Saved& saved, const G& g, std::index_sequence<I...>) {
    std::tuple<decltype(weft::backward_input(std::get<I>(layers_), context, std::move(std::get<I>(saved)), std::get<I>(g)))...>
        parts{weft::backward_input(std::get<I>(layers_), context, std::move(std::get<I>(saved)), std::get<I>(g))...};
    constexpr std::size_t without = (std::size_t(std::is_same_v<decltype(std::get<I>(parts).input_gradient), Nothing>) + ...);
    static_assert(without == 0 || without == sizeof...(L),
                  "weft: Branch adds the gradients of its branches, and the backward of one returned Nothing while that of "
                  "another returned a gradient: return the gradient of the input in each, or of token ids Nothing{} in each");
    // The first branch with a gradient; a refused Branch needs one too, so that there is a single error.
    constexpr std::size_t first = [] {
      const bool nothing[] = {std::is_same_v<decltype(std::get<I>(parts).input_gradient), Nothing>...};
      for (std::size_t i = 0; i < sizeof...(L); ++i)
        if (!nothing[i]) return i;
      return std::size_t(0);
    }();
    auto sum = std::get<first>(parts).input_gradient;
    if constexpr (without == 0) ((I > 0 ? void(sum = add(sum, std::move(std::get<I>(parts).input_gradient))) : void()), ...);
    using Deferred = std::tuple<typename std::tuple_element_t<I, decltype(parts)>::deferred_type...>;
    return InputGradient<decltype(sum), Deferred>{std::move(sum), Deferred{std::move(std::get<I>(parts).deferred)...}};
  }
  template <class Context, class Deferred, std::size_t... I>
  void weights(const Context& context, Deferred& deferred, std::index_sequence<I...>) {
    (weft::backward_weight(std::get<I>(layers_), context, std::move(std::get<I>(deferred))), ...);
  }

  std::tuple<L...> layers_;
};
// A Branch of a Branch is not its copy. (The guide is explicit, so `Branch copy = branch` is a copy.)
template <class... L>
explicit Branch(Branch<L...>) -> Branch<Branch<L...>>;

/// x + L(x). A Partial L(x) is brought to x's layout: by an all-reduce, or by a reduce-scatter if x is sharded by rows (sequence
/// parallelism).
template <class L>
class Residual : public Primitive<Residual<L>> {
 public:
  explicit Residual(L layer) : layer_(std::move(layer)) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if constexpr (!detail::Forwards<L, Context, X>) {
      return detail::refuse_forward<L, Context, X>();
    } else {
      auto result = weft::forward(layer_, context, x);
      using R = decltype(result);
      constexpr bool real = !std::is_same_v<gradient_t<X>, Nothing>, refused = detail::is_refused<typename R::output_type>;
      static_assert(real || refused,
                    "weft: Residual adds a layer's output to its input, and this input is not Real (token ids): put the layer in "
                    "front of the Residual, in a Sequential");
      using S = Saved<X, typename R::output_type, typename R::saved_type>;
      if constexpr (refused) return detail::RefusedResult();
      else if constexpr (real)
        return Result{add(x, to_layout_of<X>(context, std::move(result.output))), S{std::move(result.saved)}};
      else return Result{std::move(result.output), S{std::move(result.saved)}};  // one error is enough
    }
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved&& saved, const G& g) {
    detail::require_given_away<Saved>();
    using X = typename std::remove_cvref_t<Saved>::input_type;
    const auto inside = to_layout_of<gradient_t<typename std::remove_cvref_t<Saved>::output_type>>(context, g);
    if constexpr (detail::JoinsSums<L> && std::is_same_v<gradient_t<X>, G>) {
      return weft::backward_input(layer_, context, std::move(saved.inner), inside, g);
    } else {
      auto split = weft::backward_input(layer_, context, std::move(saved.inner), inside);
      using D = typename decltype(split)::deferred_type;
      if constexpr (std::is_same_v<gradient_t<X>, Nothing>) {
        return split;
      } else {
        auto sum = add(g, detail::input_gradient_of<X>(std::move(split.input_gradient)));
        return InputGradient<G, D>{std::move(sum), std::move(split.deferred)};
      }
    }
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred&& deferred) {
    weft::backward_weight(layer_, context, std::move(deferred));
  }

 private:
  template <class X, class Y, class Inner>
  struct Saved {
    using input_type = X;
    using output_type = Y;
    Inner inner;
  };
  L layer_;
};
// A Residual of a Residual is two residuals, not a copy. (The guide is explicit, so `Residual copy = residual` is a copy.)
template <class L>
explicit Residual(Residual<L>) -> Residual<Residual<L>>;

/// Layers of one type, one after the other; the output must have the placement of the input.
template <class L>
class Repeat : public Primitive<Repeat<L>> {
 public:
  explicit Repeat(std::vector<L> layers) : layers_(std::move(layers)) {}

  template <class Context, class X>
  auto forward(const Context& context, X x) const {
    using R = detail::forward_of_t<L, Context, X>;
    constexpr bool refused = detail::is_refused<typename R::output_type>, closes = std::is_same_v<typename R::output_type, X>;
    static_assert(refused || closes,
                  "weft: a repeated layer must return what it takes (same placement): wrap its layers in Residual, or bring its "
                  "output back with to_layout_of<X>");
    if constexpr (!closes) {
      return detail::RefusedResult();
    } else {
      std::vector<typename R::saved_type> saved;
      saved.reserve(layers_.size());
      for (const L& layer : layers_) {
        auto result = weft::forward(layer, context, x);
        x = std::move(result.output);
        saved.push_back(std::move(result.saved));
      }
      return Result{std::move(x), std::move(saved)};
    }
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, std::vector<Saved> saved, G g) {
    using D = typename decltype(weft::backward_input(layers_[0], context, std::move(saved[0]), g))::deferred_type;
    std::vector<D> deferred(layers_.size());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      auto split = weft::backward_input(layers_[i], context, std::move(saved[i]), g);
      g = detail::input_gradient_of<gradient_t<G>>(std::move(split.input_gradient));
      deferred[i] = std::move(split.deferred);
    }
    return InputGradient{std::move(g), std::move(deferred)};
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, std::vector<Deferred> deferred) {
    for (std::size_t i = layers_.size(); i-- > 0;) weft::backward_weight(layers_[i], context, std::move(deferred[i]));
  }

 private:
  std::vector<L> layers_;
};

/// Brings x to Replicated on A once, so that several column-parallel layers share one all-reduce in backward.
template <detail::Axis A>
struct EnterParallelRegion {
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return Result{to<Replicated<A>>(context, x), std::type_identity<X>{}};
  }
  template <class Context, class X, class G>
  auto backward(const Context& context, std::type_identity<X>, const G& g) const {
    return to_layout_of<gradient_t<X>>(context, g);
  }
};

}  // namespace weft
