// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values that a fused kernel keeps in registers, and two kernels would store in memory. To have the same bits, the fused kernel
// rounds such a value to the type of the memory. It also prevents the compiler from fusing a product with the following addition
// into one rounding.
//
//   add_apart(V::load(y + i, count), rounded<T>(a * b)).store(y + i, count);   // the bits of t = a * b, y = y + t

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

#include <weft/kernels/detail/lanes.hpp>

namespace weft::kernels::detail {

/// x, a register of Lanes, with each number rounded to T.
template <class T, class V>
KOKKOS_FORCEINLINE_FUNCTION V rounded(V x) {
  using A = typename V::value_type;
  if constexpr (std::is_same_v<T, A>) {
    return x;
  } else {
#if defined(__CUDA_ARCH__)
    for (std::size_t k = 0; k < V::size; ++k) x.v[k] = A(T(x.v[k]));
    return x;
#else
    T part[V::size];
    x.store(part);
    return V::load(part);
#endif
  }
}

#if !defined(__CUDA_ARCH__)
/// Hides from the compiler how `x`, a number or a vector register, was computed.
template <class X>
[[gnu::always_inline]] inline void hide_origin(X& x) {
#if defined(__x86_64__)
  asm("" : "+x"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#else
  volatile X through = x;
  x = through;
#endif
}
#endif

/// a + b in two roundings if b is a product.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V add_apart(V a, V b) {
#if defined(__CUDA_ARCH__)
  for (std::size_t k = 0; k < V::size; ++k)
    if constexpr (std::is_same_v<typename V::value_type, double>) a.v[k] = __dadd_rn(a.v[k], b.v[k]);
    else a.v[k] = __fadd_rn(a.v[k], b.v[k]);
  return a;
#else
  if constexpr (std::is_array_v<decltype(b.v)>)
    for (std::size_t k = 0; k < V::size; ++k) hide_origin(b.v[k]);
  else hide_origin(b.v);
  return a + b;
#endif
}

}  // namespace weft::kernels::detail
