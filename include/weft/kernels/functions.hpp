// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops that apply a function to each element of one, two or three arrays, in lanes; functions for layers, and their derivatives.
// A function is written once, for a register of lanes on hosts and for one number per thread elsewhere, so an element's bits do
// not depend on the layout.
//
//   kernels::map<float>(device, n, x, y, kernels::Silu());               // y[i] = silu(x[i])
//   kernels::map<float>(device, n, x, dy, dx, kernels::SiluGradient());  // dx[i] = dy[i] silu'(x[i])

#include <cstddef>
#include <cstdint>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// out[i] = f(x[i]); `out` may be `x`.
template <class T, class Exec, class F>
void map(Device<Exec>& device, std::size_t n, const T* x, T* out, F f) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 2 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { f(V::load(x + i, count)).store(out + i, count); });
}
/// out[i] = f(a[i], b[i]); `out` may be either of them.
template <class T, class Exec, class F>
void map(Device<Exec>& device, std::size_t n, const T* a, const T* b, T* out, F f) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 3 * n * sizeof(T)}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) { f(V::load(a + i, count), V::load(b + i, count)).store(out + i, count); });
}
/// out[i] = f(a[i], b[i], c[i]); `out` may be any of them.
template <class T, class Exec, class F>
void map(Device<Exec>& device, std::size_t n, const T* a, const T* b, const T* c, T* out, F f) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"elementwise", 4 * n * sizeof(T)}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        f(V::load(a + i, count), V::load(b + i, count), V::load(c + i, count)).store(out + i, count);
      });
}

namespace detail {
/// x in the lanes where a > b, else y.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V if_greater(V a, V b, V x, V y) {
  if constexpr (requires { typename V::native; }) return V(typename V::native(a.v > b.v ? x.v : y.v));
  else return V::make([&](std::size_t k) { return a.v[k] > b.v[k] ? x.v[k] : y.v[k]; });
}
/// x in the lanes where a is NaN, else y.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V if_nan(V a, V x, V y) {
  if constexpr (requires { typename V::native; }) return V(typename V::native(a.v != a.v ? x.v : y.v));
  else return V::make([&](std::size_t k) { return a.v[k] != a.v[k] ? x.v[k] : y.v[k]; });
}
/// f of each lane.
template <class V, class F>
KOKKOS_FORCEINLINE_FUNCTION V each_lane(V a, F f) {
  for (std::size_t k = 0; k < V::size; ++k) a.v[k] = f(a.v[k]);
  return a;
}
/// Φ(x), the cumulative distribution function of the normal distribution.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V normal_probability(V x) {
  using A = typename V::value_type;
  return each_lane(x, [](A a) { return A(0.5) * Kokkos::erfc(a * A(-0.70710678118654752)); });
}
}  // namespace detail

// Functions of two arrays.

struct Plus {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return a + b;
  }
};
struct Minus {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return a - b;
  }
};
struct Times {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return a * b;
  }
};
struct Divided {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return a / b;
  }
};

// Functions of one array. Each `Gradient` takes x (or the result y, if its comment has y) and the gradient g of the result.

/// x + number.
template <class A>
struct AddNumber {
  A number;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return x + V(number);
  }
};
/// number - x.
template <class A>
struct SubtractFrom {
  A number;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return V(number) - x;
  }
};
/// number / x.
template <class A>
struct DivideNumber {
  A number;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return V(number) / x;
  }
};
/// Gradient of the divisor in y = x / divisor or number / divisor: -g y / divisor.
struct DivisorGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V divisor, V y, V g) const {
    return -(g * y / divisor);
  }
};
/// Gradient of y = tanh(x): g (1 - y²).
struct TanhGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V y, V g) const {
    return g * (V(typename V::value_type(1)) - y * y);
  }
};
/// Gradient of y = sigmoid(x): g y (1 - y).
struct SigmoidGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V y, V g) const {
    return g * y * (V(typename V::value_type(1)) - y);
  }
};
/// Gradient of y = sqrt(x): g / (2 y).
struct SqrtGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V y, V g) const {
    return V(typename V::value_type(0.5)) * g / y;
  }
};
/// Gradient of x²: 2 g x.
struct SquareGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return V(typename V::value_type(2)) * g * x;
  }
};
/// x sigmoid(x). Elfwing, Uchibe and Doya 2017.
struct Silu {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return x * detail::sigmoid(x);
  }
};
struct SiluGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    const V s = detail::sigmoid(x), one = V(typename V::value_type(1));
    return g * s * (one + x * (one - s));
  }
};
/// x Φ(x), exactly. Hendrycks and Gimpel 2016.
struct GeluErf {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return x * detail::normal_probability(x);
  }
};
struct GeluErfGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    using A = typename V::value_type;
    return g * (detail::normal_probability(x) + x * V(A(0.39894228040143268)) * exp(V(A(-0.5)) * x * x));
  }
};
/// max(x, 0); NaN stays NaN.
struct Relu {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return max_of(V(typename V::value_type(0)), x);
  }
};
/// Gradient of y = relu(x): g if y is positive, otherwise 0.
struct ReluGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V y, V g) const {
    const V zero = V(typename V::value_type(0));
    return detail::if_greater(y, zero, g, zero);
  }
};
/// x, but at least `lowest` and at most `highest`; NaN stays NaN.
template <class A>
struct Clamp {
  A lowest, highest;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    const V above = max_of(V(lowest), x);
    return detail::if_greater(above, V(highest), V(highest), above);
  }
};
/// g if lowest <= x <= highest, otherwise 0.
template <class A>
struct ClampGradient {
  A lowest, highest;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    const V zero = V(A(0));
    return detail::if_greater(V(lowest), x, zero, detail::if_greater(x, V(highest), zero, g));
  }
};
/// The larger one; NaN if either is NaN.
struct Maximum {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return detail::if_nan(a, a, max_of(a, b));
  }
};
struct Minimum {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return -Maximum()(-a, -b);
  }
};
/// Gradient of a in maximum(a, b) (sign 1) or minimum(a, b) (sign -1): g if a is chosen, half of it if both are equal.
template <class A>
struct MaximumGradient {
  A sign;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b, V g) const {
    const V left = V(sign) * a, right = V(sign) * b;
    return detail::if_greater(left, right, g, detail::if_greater(right, left, V(A(0)), V(A(0.5)) * g));
  }
};

// Comparisons; all but NotEqual are false of a NaN.

struct Less {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a <= b;
  }
};
struct Greater {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a >= b;
  }
};
struct Equal {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION bool operator()(A a, A b) const {
    return a != b;
  }
};

/// The type in which T is compared with a number: whole numbers with a fraction in double.
template <class T>
using compared_t = std::conditional_t<std::is_integral_v<accumulate_t<T>>, double, accumulate_t<T>>;
/// out[i] = 1 if f(a[i], b[i]), else 0; b[i] is `number` if b is null.
template <class T, class Exec, class F>
void compare(Device<Exec>& device, std::size_t n, const T* a, const T* b, compared_t<T> number, std::uint8_t* out, F f) {
  using A = accumulate_t<T>;
  using N = compared_t<T>;
  // Copies in registers: a byte of the result may alias the loop's captures, and then no compiler vectorises it.
  if (b == nullptr)
    detail::for_runs(
        device, {"elementwise", n * (sizeof(T) + 1)}, n, KOKKOS_LAMBDA(std::size_t first, std::size_t count) {
          const T* const x = a + first;
          std::uint8_t* const to = out + first;
          const N limit = number;
          const F holds = f;
          for (std::size_t i = 0; i < count; ++i) to[i] = std::uint8_t(holds(N(A(x[i])), limit));
        });
  else
    detail::for_runs(
        device, {"elementwise", n * (2 * sizeof(T) + 1)}, n, KOKKOS_LAMBDA(std::size_t first, std::size_t count) {
          const T *const x = a + first, *const y = b + first;
          std::uint8_t* const to = out + first;
          const F holds = f;
          for (std::size_t i = 0; i < count; ++i) to[i] = std::uint8_t(holds(A(x[i]), A(y[i])));
        });
}
/// out[i] = condition[i] != 0 ? a[i] : b[i]; a null array counts as 0.
template <class T, class C, class Exec>
void select(Device<Exec>& device, std::size_t n, const C* condition, const T* a, const T* b, T* out) {
  if (b == nullptr)
    detail::for_each(
        device, {"elementwise", n * (2 * sizeof(T) + sizeof(C))}, n,
        KOKKOS_LAMBDA(std::size_t i) { out[i] = condition[i] != 0 ? a[i] : T(accumulate_t<T>(0)); });
  else if (a == nullptr)
    detail::for_each(
        device, {"elementwise", n * (2 * sizeof(T) + sizeof(C))}, n,
        KOKKOS_LAMBDA(std::size_t i) { out[i] = condition[i] != 0 ? T(accumulate_t<T>(0)) : b[i]; });
  else
    detail::for_each(
        device, {"elementwise", n * (3 * sizeof(T) + sizeof(C))}, n,
        KOKKOS_LAMBDA(std::size_t i) { out[i] = condition[i] != 0 ? a[i] : b[i]; });
}

}  // namespace weft::kernels
