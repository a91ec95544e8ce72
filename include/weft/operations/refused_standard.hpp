// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions of the standard library and of Kokkos that a forward calls with its values: each call is one error with the operation
// to write. Without these overloads, which only refuse, a compiler lists its candidates instead, or compares values.
//
//   auto y = std::tanh(x);      // weft: std::tanh is a function of numbers, and this is a value of a forward: write tanh(x)
//   auto z = clamp(x, y, x);    // weft: clamp of values of a forward, which are not compared: write minimum(maximum(x, low),
//   high)

#include <type_traits>

#include <weft/operations/refused.hpp>

namespace weft {

namespace detail {

/// An operand, for functions that come before equal ones in std.
template <class V>
concept OperandFoundFirst = SingleOperand<V> && sizeof(V) != 0;

}  // namespace detail

namespace operations {

// clang-format off
// Functions of std and of Kokkos that take any values of one type and compare them: a call without std:: finds Kokkos' ones.
#define WEFT_CHOICE_OF_EQUALS(operand, name, arguments, instead)                                                                  \
  template <operand V> weft::detail::AlreadyRefused name arguments {                                                              \
    static_assert(weft::detail::is_silent<V>, "weft: " #name " of values of a forward, which are not compared: write " instead); \
    return {};                                                                                                                    \
  }
#define WEFT_CHOICES_OF_EQUALS(operand)                                                           \
  WEFT_CHOICE_OF_EQUALS(operand, max, (const V&, const V&), "maximum(x, y)")                      \
  WEFT_CHOICE_OF_EQUALS(operand, min, (const V&, const V&), "minimum(x, y)")                      \
  WEFT_CHOICE_OF_EQUALS(operand, minmax, (const V&, const V&), "minimum(x, y) and maximum(x, y)") \
  WEFT_CHOICE_OF_EQUALS(operand, clamp, (const V&, const V&, const V&), "minimum(maximum(x, low), high); clamp(x, low, high) takes numbers")
WEFT_CHOICES_OF_EQUALS(detail::OperandFoundFirst)
// clang-format on

}  // namespace operations

}  // namespace weft

namespace std {

// clang-format off
#define WEFT_NO_STANDARD(name, instead)                                                                                      \
  template <weft::detail::SingleOperand V, class... More> weft::detail::AlreadyRefused name(const V&, const More&...) {             \
    static_assert(weft::detail::is_silent<V>, "weft: std::" #name " is a function of numbers, and this is a value of a forward: write " instead); \
    return {};                                                                                                               \
  }
WEFT_NO_STANDARD(tanh, "tanh(x)")
WEFT_NO_STANDARD(exp, "exp(x)")
WEFT_NO_STANDARD(log, "log(x)")
WEFT_NO_STANDARD(sqrt, "sqrt(x)")
WEFT_NO_STANDARD(pow, "pow(x, number), or pow(x, y) of two values")
WEFT_NO_STANDARD(abs, "abs(x)")
WEFT_NO_STANDARD(fabs, "abs(x)")
WEFT_NO_STANDARD(sin, "sin(x)")
WEFT_NO_STANDARD(cos, "cos(x)")
WEFT_NO_STANDARD(tan, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(asin, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(acos, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(atan, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(sinh, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(cosh, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(erf, "erf(x)")
WEFT_NO_STANDARD(floor, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(ceil, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(round, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(log2, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(log1p, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(expm1, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(exp2, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(log10, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(asinh, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(acosh, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(atanh, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(cbrt, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(erfc, "1.0 - erf(x)")
WEFT_NO_STANDARD(lgamma, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(tgamma, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(trunc, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(fmod, "map(x, f, derivative) takes a function of your own")
WEFT_NO_STANDARD(copysign, "where(y < 0, -abs(x), abs(x))")
WEFT_NO_STANDARD(isinf, "nothing: ModelOptions::numerics.trace_nonfinite names the tensor")
WEFT_NO_STANDARD(atan2, "a Primitive with forward(x, y) and gradient(g, x, y) is an operation of your own")
WEFT_NO_STANDARD(hypot, "sqrt(x * x + y * y)")
WEFT_NO_STANDARD(fmax, "maximum(x, y) of two values, relu(x) beside 0")
WEFT_NO_STANDARD(fmin, "minimum(x, y) of two values, clamp(x, low, high)")
WEFT_NO_STANDARD(isnan, "nothing: ModelOptions::numerics.trace_nonfinite names the tensor")
WEFT_NO_STANDARD(isfinite, "nothing: ModelOptions::numerics.trace_nonfinite names the tensor")
#undef WEFT_NO_STANDARD
// Standard functions of two arguments, one of them a number.
#define WEFT_NO_STANDARD_BESIDE(name, instead)                                                                                     \
  template <weft::detail::SingleOperand V, class N> requires std::is_arithmetic_v<N> weft::detail::AlreadyRefused name(const V&, const N&) { \
    static_assert(weft::detail::is_silent<V>, "weft: std::" #name " is a function of numbers, and this is a value of a forward: write " instead); \
    return {};                                                                                                                     \
  }                                                                                                                                \
  template <weft::detail::SingleOperand V, class N> requires std::is_arithmetic_v<N> weft::detail::AlreadyRefused name(const N&, const V& v) { \
    return std::name(v, N());                                                                                                      \
  }
WEFT_NO_STANDARD_BESIDE(max, "relu(x) beside 0, clamp(x, low, high), maximum(x, y) of two values")
WEFT_NO_STANDARD_BESIDE(min, "clamp(x, low, high), minimum(x, y) of two values")
#undef WEFT_NO_STANDARD_BESIDE
WEFT_CHOICES_OF_EQUALS(weft::detail::SingleOperand)
#undef WEFT_CHOICES_OF_EQUALS
#undef WEFT_CHOICE_OF_EQUALS
template <weft::detail::SingleOperand V, class N> requires std::is_arithmetic_v<N> weft::detail::AlreadyRefused pow(const N&, const V&) {
  static_assert(weft::detail::is_silent<V>, "weft: std::pow is a function of numbers, and this is a value of a forward: write pow(number, x)");
  return {};
}
template <weft::detail::SingleOperand V, class N> weft::detail::AlreadyRefused clamp(const V&, const N&, const N&) {
  static_assert(weft::detail::is_silent<V>, "weft: std::clamp is a function of numbers, and this is a value of a forward: write clamp(x, low, high)");
  return {};
}
// clang-format on
}  // namespace std
