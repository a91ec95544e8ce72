// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions of each element beyond those of functions.hpp: sine and cosine, the absolute value, the error function, powers, and
// smooth relatives of ReLU, with their derivatives. They call the C library's functions in each lane, so they are slower than
// exp or tanh and as accurate as the library.
//
//   kernels::map<float>(device, n, x, y, kernels::Softplus());   // y[i] = log(1 + exp(x[i]))

#include <Kokkos_Core.hpp>

#include <weft/kernels/functions.hpp>

namespace weft::kernels {

namespace detail {
/// f(x, g) in each lane.
template <class V, class F>
KOKKOS_FORCEINLINE_FUNCTION V each_lane(V a, V b, F f) {
  for (std::size_t k = 0; k < V::size; ++k) a.v[k] = f(a.v[k], b.v[k]);
  return a;
}
/// log(1 + exp(x)), without overflow, and exact for large negative x.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A softplus(A x) {
  return (x > A(0) ? x : A(0)) + (x != x ? x : Kokkos::log1p(Kokkos::exp(-Kokkos::fabs(x))));
}
}  // namespace detail

// Each `Gradient` takes x and the gradient g of the result.

/// sin(x), of radians; gradient g cos(x).
struct Sin {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return Kokkos::sin(a); });
  }
};
struct SinGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return g * detail::each_lane(x, [](auto a) { return Kokkos::cos(a); });
  }
};
/// cos(x); gradient -g sin(x).
struct Cos {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return Kokkos::cos(a); });
  }
};
struct CosGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return -(g * detail::each_lane(x, [](auto a) { return Kokkos::sin(a); }));
  }
};
/// |x|; gradient g, -g, or 0 where x is 0.
struct Abs {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return Kokkos::fabs(a); });
  }
};
struct AbsGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return detail::each_lane(x, g, [](auto a, auto b) { return a > 0 ? b : a < 0 ? -b : a * b; });
  }
};
/// erf(x); gradient g 2 / sqrt(pi) exp(-x²).
struct Erf {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return Kokkos::erf(a); });
  }
};
struct ErfGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    using A = typename V::value_type;
    return g * V(A(1.1283791670955126)) * detail::each_lane(x, [](A a) { return Kokkos::exp(-a * a); });
  }
};
/// x to the power `exponent`, as the C library's pow; gradient g exponent x^(exponent - 1), 0 if the exponent is 0.
template <class A>
struct Power {
  A exponent;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    const A p = exponent;
    return detail::each_lane(x, [p](A a) { return Kokkos::pow(a, p); });
  }
};
template <class A>
struct PowerGradient {
  A exponent;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    const A p = exponent;
    return detail::each_lane(x, g, [p](A a, A b) { return p == A(0) ? A(0) : b * (p * Kokkos::pow(a, p - A(1))); });
  }
};
/// x to the power y, as the C library's pow, and the gradients of x and of y, as PyTorch's: 0 of x where y is 0, and 0 of y where
/// x is 0 and y is not negative.
struct PowerOfPairs {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V y) const {
    return detail::each_lane(x, y, [](auto a, auto b) { return Kokkos::pow(a, b); });
  }
};
struct BaseGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V y, V g) const {
    const V slope = detail::each_lane(x, y, [](auto a, auto b) {
      using A = decltype(a);
      return b == A(0) ? A(0) : b * Kokkos::pow(a, b - A(1));
    });
    return g * slope;
  }
};
struct ExponentGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V y, V g) const {
    const V slope = detail::each_lane(x, y, [](auto a, auto b) {
      using A = decltype(a);
      return a == A(0) && b >= A(0) ? A(0) : Kokkos::pow(a, b) * Kokkos::log(a);
    });
    return g * slope;
  }
};
/// log(1 + exp(x)); gradient g sigmoid(x).
struct Softplus {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return detail::softplus(a); });
  }
};
struct SoftplusGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return g * detail::sigmoid(x);
  }
};
/// x if positive, else alpha (exp(x) - 1). Clevert and others 2015.
template <class A>
struct Elu {
  A alpha;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    const A scale = alpha;
    return detail::each_lane(x, [scale](A a) { return a > A(0) ? a : scale * Kokkos::expm1(a); });
  }
};
template <class A>
struct EluGradient {
  A alpha;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    const A scale = alpha;
    return detail::each_lane(x, g, [scale](A a, A b) { return a > A(0) ? b : b * (scale * Kokkos::exp(a)); });
  }
};
/// x tanh(softplus(x)). Misra 2019.
struct Mish {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](auto a) { return a * Kokkos::tanh(detail::softplus(a)); });
  }
};
struct MishGradient {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    using A = typename V::value_type;
    const V t = detail::each_lane(x, [](A a) { return Kokkos::tanh(detail::softplus(a)); });
    return g * (t + x * (V(A(1)) - t * t) * detail::sigmoid(x));
  }
};

}  // namespace weft::kernels
