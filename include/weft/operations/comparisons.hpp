// SPDX-License-Identifier: Apache-2.0
#pragma once
// Comparisons of values, element by element: masks of 1 and 0 without a gradient, as conditions of `where`. An operator and a
// function of each; a mask is no condition of the program, since each rank has a part of it.
//
//   auto leaky = where(x > 0, x, 0.1 * x);        // as where(greater(x, 0), x, 0.1 * x)
//   auto inside = where(x * x + y * y <= 1, a, b);

#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/functions.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/broadcast.hpp>
#include <weft/operations/refused.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

/// The operands' rule in a function of pairs of elements.
template <class X, class Y>
using Pairs = Broadcast<Arithmetic::other, X, Y>;
template <class X, class Y>
constexpr bool require_pairs() {
  static_assert(std::is_same_v<X, Y> || Pairs<X, Y>::fits,
                "weft: the two tensors are placed differently, or hold different element types; bring one to the other's layout, "
                "to_layout_of(x, y), on tensors to_layout_of<X>(context, y), or type, cast<T>(y)");
  if constexpr (std::is_same_v<X, Y>) require_not_partial<X>();
  return Pairs<X, Y>::fits;
}

/// A tensor, or a Variable of one, on any level of grad (autograd/nested_variable.hpp).
template <class V>
inline constexpr bool is_comparable = is_tensor<V>;
template <class C, class X>
inline constexpr bool is_comparable<Variable<C, X>> = is_comparable<X>;
template <class C, class X>
inline constexpr bool is_comparable<Constant<C, X>> = is_comparable<X>;
template <class V>
concept Comparable = is_comparable<std::remove_cvref_t<V>>;

/// A mask as a constant beside x.
template <class X, class N>
Variable<typename X::context_type, N> on_tape_of(const X& x, N mask) {
  return {std::move(mask), x.tape()};
}
template <class X, class Y, class F>
auto compared(const char* operation, const X& x, const Y& y, F f) {
  if constexpr (AnyVariable<X>) {
    constexpr bool x_nested = AnyVariable<typename X::tensor_type>, y_nested = AnyVariable<typename Y::tensor_type>;
    if constexpr (x_nested == y_nested) return on_tape_of(x, compared(operation, x.value(), y.value(), f));
    else if constexpr (x_nested) return on_tape_of(x, compared(operation, x.value(), y, f));
    else return on_tape_of(y, compared(operation, x, y.value(), f));
  } else {
    using T = typename X::value_type;
    using Mask = with_scalar_t<typename Pairs<X, Y>::type, std::uint8_t>;
    if constexpr (!require_pairs<X, Y>()) {
      return Mask(x.device(), x.shape());  // one error is enough
    } else {
      Mask out(x.device(), shape_of_pairs<Arithmetic::other>(operation, x, y));
      if (x.shape() == y.shape()) kernels::compare<T>(x.device(), x.size(), x.data(), y.data(), {}, out.data(), f);
      else
        kernels::compare_expanded<T>(x.device(), expansion_of(out.shape(), x.shape(), y.shape()), x.data(), y.data(), out.data(),
                                     f);
      return out;
    }
  }
}
template <class X, class F>
auto compared(const char* operation, const X& x, double number, F f) {
  if constexpr (AnyVariable<X>) {
    return on_tape_of(x, compared(operation, x.value(), number, f));
  } else {
    require_not_partial<X>();
    with_scalar_t<X, std::uint8_t> out(x.device(), x.shape());
    kernels::compare<typename X::value_type>(x.device(), x.size(), x.data(), nullptr,
                                             kernels::compared_t<typename X::value_type>(number), out.data(), f);
    return out;
  }
}

}  // namespace detail

namespace operations {

// clang-format off
/// 1 where the comparison holds, else 0, as std::uint8_t, placed as x, which is not Partial. Two values have one element type, and
/// equal placements and shapes or ones that are broadcast (broadcast.hpp); ShapeError is thrown if they do not fit. A number is
/// rounded to the values' accumulate_t, and whole numbers are compared in double. A comparison with a NaN is 0, but 1 of
/// not_equal. (V is no int: clang 14 would instantiate an operator of two numbers.)
#define WEFT_COMPARISON(name, op, F, Exchanged)                                                                    \
  template <detail::Comparable X, detail::Comparable Y> requires(AnyTensor<X> == AnyTensor<Y>)                     \
  auto name(const X& x, const Y& y) { return detail::compared(#name, x, y, kernels::F()); }                        \
  template <detail::Comparable X>                                                                                  \
  auto name(const X& x, double number) { return detail::compared(#name, x, number, kernels::F()); }                \
  template <detail::Comparable X, detail::Comparable Y> requires(AnyTensor<X> == AnyTensor<Y>)                     \
  auto operator op(const X& x, const Y& y) { return detail::compared(#name, x, y, kernels::F()); }                 \
  template <detail::Comparable X>                                                                                  \
  auto operator op(const X& x, double number) { return detail::compared(#name, x, number, kernels::F()); }         \
  template <template <class...> class V, class... A> requires detail::Comparable<V<A...>>                          \
  auto operator op(double number, const V<A...>& x) { return detail::compared(#name, x, number, kernels::Exchanged()); }
WEFT_COMPARISON(less, <, Less, Greater)
WEFT_COMPARISON(less_equal, <=, LessEqual, GreaterEqual)
WEFT_COMPARISON(greater, >, Greater, Less)
WEFT_COMPARISON(greater_equal, >=, GreaterEqual, LessEqual)
WEFT_COMPARISON(equal, ==, Equal, Equal)
WEFT_COMPARISON(not_equal, !=, NotEqual, NotEqual)
#undef WEFT_COMPARISON
// clang-format on

}  // namespace operations

}  // namespace weft
