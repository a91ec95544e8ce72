// SPDX-License-Identifier: Apache-2.0
#pragma once
// Error messages for types that are no layers. Sequential, Residual and every other place that takes a layer checks the concepts
// below. If one is not met, the compiler prints one error that names the member, its expected form and the code to write. Later
// uses are silent: the result of a refused layer is AlreadyRefused, and no layer is called with it.
//
//   if constexpr (!Forwards<L, Context, X>) return refuse_forward<L, Context, X>();

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/forward.hpp>
#include <weft/autograd/result.hpp>
#include <weft/core/has_member.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class X>
inline constexpr bool is_refused = std::is_same_v<std::remove_cvref_t<X>, AlreadyRefused>;
using RefusedResult = Result<AlreadyRefused, AlreadyRefused>;

/// The type that `weft::forward(layer, context, inputs...)` returns.
template <class L, class Context, class... X>
using forward_t = decltype(weft::forward(std::declval<const L&>(), std::declval<const Context&>(), std::declval<const X&>()...));

// Whether S holds references, as std::tie does: their targets are gone when backward reads them.
template <class S>
inline constexpr bool refers = std::is_reference_v<S>;
template <class... S>
inline constexpr bool refers<std::tuple<S...>> = (std::is_reference_v<S> || ...);
template <class A, class B>
inline constexpr bool refers<std::pair<A, B>> = std::is_reference_v<A> || std::is_reference_v<B>;
template <class S>
inline constexpr bool can_be_saved = std::is_move_constructible_v<S> && !refers<S>;

/// L's forward can be called on inputs of types X under Context and returns a Result.
template <class L, class Context, class... X>
concept Forwards = (!is_refused<X> && ...) && requires {
  typename forward_t<L, Context, X...>::saved_type;
}
&&can_be_saved<typename forward_t<L, Context, X...>::saved_type>;

namespace layer_check {

WEFT_HAS_MEMBER(forward)
WEFT_HAS_MEMBER(backward)
WEFT_HAS_MEMBER(backward_input)
WEFT_HAS_MEMBER(backward_weight)

enum class Forward { right, missing, not_const, arguments, returns_nothing, no_result, saved_stays, saved_refers };

template <class L, class Context, class... X>
constexpr Forward fault_of_forward() {
  if constexpr (requires { typename forward_t<L, Context, X...>::saved_type; }) {
    using S = typename forward_t<L, Context, X...>::saved_type;
    return refers<S> ? Forward::saved_refers : std::is_move_constructible_v<S> ? Forward::right : Forward::saved_stays;
  } else if constexpr (requires { typename std::type_identity<forward_t<L, Context, X...>>; }) {
    return std::is_void_v<forward_t<L, Context, X...>> ? Forward::returns_nothing : Forward::no_result;
  } else if constexpr (!has_forward<L>()) {
    return Forward::missing;
  } else if constexpr (requires(L & layer, const Context& context, const X&... x) { layer.forward(context, x...); }) {
    return Forward::not_const;
  } else {
    return Forward::arguments;
  }
}

enum class Backward { right, missing, arguments, returns_nothing, no_split, split };

template <class L, class Context, class Saved, class G>
constexpr Backward fault_of_backward() {
  constexpr bool halves = requires(L & layer, const Context& context, Saved&& saved, const G& g) {
    layer.backward_input(context, std::forward<Saved>(saved), g);
  };
  constexpr bool whole = requires(L & layer, const Context& context, Saved&& saved, const G& g) {
    layer.backward(context, std::forward<Saved>(saved), g);
  };
  if constexpr (halves) {
    return std::is_void_v<decltype(std::declval<L&>().backward_input(std::declval<const Context&>(), std::declval<Saved>(),
                                                                     std::declval<const G&>()))>
               ? Backward::returns_nothing
               : Backward::no_split;
  } else if constexpr (whole) {
    return std::is_void_v<decltype(std::declval<L&>().backward(std::declval<const Context&>(), std::declval<Saved>(),
                                                               std::declval<const G&>()))>
               ? Backward::returns_nothing
               : Backward::split;
  } else {
    return has_backward<L>() || has_backward_input<L>() ? Backward::arguments : Backward::missing;
  }
}

}  // namespace layer_check

/// Prints why L's forward cannot be used; nothing if the input comes from a layer that was refused already.
template <class L, class Context, class... X>
constexpr auto refuse_forward() {  // auto: an unevaluated use prints the error, too
  using layer_check::Forward;
  constexpr Forward fault = [] {
    if constexpr ((is_refused<X> || ...)) return Forward::right;
    else return layer_check::fault_of_forward<L, Context, X...>();
  }();
  static_assert(fault != Forward::missing,
                "weft: this layer has no forward: write `auto forward(const auto& context, const auto& x) const`, which returns "
                "Result{output, saved}; see L in this function's template arguments");
  static_assert(
      fault != Forward::not_const,
      "weft: this layer's forward is not const: it is a pure function, and several micro-batches may be in flight; "
      "store the values that backward reads in saved, not in a member: write `auto forward(const auto& context, const auto& x) "
      "const`; see L in this function's template arguments");
  static_assert(
      fault != Forward::arguments,
      "weft: this layer's forward cannot be called with the context and its input (a model's back: context, hidden "
      "state and targets): it must be public and take each by const reference or by value, whatever their types: write "
      "`auto forward(const auto& context, const auto& x) const`, or, of an operation that has no parameters, `gradient(const "
      "auto& g, const auto& x)` beside `forward(const auto& x)`; see L and X in this function's template arguments");
  static_assert(fault != Forward::returns_nothing,
                "weft: this layer's forward returns nothing (void): return Result{output, saved}, where saved holds the values "
                "that backward reads, or is Nothing{}; see L in this function's template arguments");
  static_assert(
      fault != Forward::no_result,
      "weft: this layer's forward returns something else than a Result, such as its output alone: return Result{output, saved}, "
      "where saved holds the values that backward reads, or is Nothing{}; see L in this function's template arguments");
  static_assert(
      fault != Forward::saved_stays,
      "weft: this layer's forward saves values that cannot be moved, and they are kept until backward: save values that "
      "can be moved (tensors, numbers, std::tuple or a struct of them); see L in this function's template arguments");
  static_assert(
      fault != Forward::saved_refers,
      "weft: this layer's forward saves references, which dangle when backward runs: save the tensors themselves, which are "
      "handles: std::tuple{x, y} or std::pair{x, y}, not std::tie(x, y); see L in this function's template arguments");
  return RefusedResult();
}

/// Prints why L's backward cannot be used.
template <class L, class Context, class Saved, class G>
constexpr void refuse_backward() {
  using layer_check::Backward;
  constexpr Backward fault = [] {
    if constexpr (is_refused<Saved> || is_refused<G>) return Backward::right;
    else return layer_check::fault_of_backward<L, Context, Saved, G>();
  }();
  static_assert(fault != Backward::missing,
                "weft: this layer has no backward: write `auto backward(const auto& context, auto saved, const auto& gradient)`, "
                "which adds to its parameters' gradients and returns that of its input, or the halves backward_input and "
                "backward_weight; see L in this function's template arguments");
  static_assert(
      fault != Backward::arguments,
      "weft: this layer has no backward(context, saved, gradient), nor backward_input, that can be called with the values that "
      "its forward saved, passed as an rvalue: take `saved` by value or const reference, not as auto&; see L, "
      "Saved and G in this function's template arguments");
  static_assert(fault != Backward::returns_nothing,
                "weft: this layer's backward returns nothing (void): return the gradient of the input, gradient_t of its type "
                "(backward_input: InputGradient{dx, deferred}); see L in this function's template arguments");
  static_assert(fault != Backward::no_split,
                "weft: this layer's backward_input returns something else than an InputGradient, such as the gradient alone: "
                "return InputGradient{dx, deferred}, where deferred holds the values that backward_weight reads, or is "
                "Nothing{}; or call the function `backward`; see L in this function's template arguments");
  static_assert(fault != Backward::split,
                "weft: this layer's backward returns an InputGradient, the result of backward_input: call it "
                "backward_input and write backward_weight(context, deferred) beside it, or return the gradient of the input "
                "alone; see L in this function's template arguments");
}

/// Prints why L's second half of backward cannot be used.
template <class L, class Context, class Deferred>
constexpr void refuse_backward_weight() {
  constexpr bool there = layer_check::has_backward_weight<L>();
  static_assert(there || is_refused<Deferred>,
                "weft: this layer's backward_input defers something, and it has no backward_weight: write `void "
                "backward_weight(const auto& context, auto deferred)`, which adds to the parameters' gradients, or defer "
                "Nothing{}; see L in this function's template arguments");
  static_assert(!there || is_refused<Deferred>,
                "weft: this layer's backward_weight cannot be called with the context and the values that backward_input "
                "deferred, passed as an rvalue: it must be public and take `deferred` by value or const reference: write `void "
                "backward_weight(const auto& context, auto deferred)`; see L and Deferred in this function's template arguments");
}

}  // namespace detail

}  // namespace weft
