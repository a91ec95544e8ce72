// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of elements that dtensor/elementwise.hpp needs beside those of kernels/functions.hpp, for kernels::map.
//
//   kernels::map<T>(device, n, x, y, TimesNumber<T>{3});   // y[i] = 3 x[i]

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/kernels/functions.hpp>
#include <weft/kernels/mlp_activation.hpp>

namespace weft::dtensor::detail {

using kernels::Divided;
using kernels::Minus;
using kernels::Plus;
using kernels::Times;

/// b / a.
struct DividedInto {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    return b / a;
  }
};
/// 1 where both are equal, else 0; NaN equals nothing.
struct Equal {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V a, V b) const {
    using A = typename V::value_type;
    for (std::size_t k = 0; k < V::size; ++k) a.v[k] = a.v[k] == b.v[k] ? A(1) : A(0);
    return a;
  }
};
template <class A>
struct TimesNumber {
  A number;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return x * V(number);
  }
};
struct Exp {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return exp(x);
  }
};
struct Log {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return kernels::detail::each_lane(x, [](typename V::value_type a) { return Kokkos::log(a); });
  }
};
struct Sqrt {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return kernels::detail::each_lane(x, [](typename V::value_type a) { return Kokkos::sqrt(a); });
  }
};
struct Sigmoid {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return kernels::detail::sigmoid(x);
  }
};
struct Square {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return x * x;
  }
};

}  // namespace weft::dtensor::detail
