// SPDX-License-Identifier: Apache-2.0
#pragma once
// The quantile of the standard normal distribution: the inverse of its cumulative distribution function.
//
//   detail::normal_quantile(0.975)   // 1.96

#include <Kokkos_Core.hpp>

#include <weft/core/standard.hpp>

namespace weft::kernels::detail {

/// Acklam's rational approximations, relative error 1.2e-9. Finite for 0 and 1.
KOKKOS_INLINE_FUNCTION double normal_quantile(double p) {
  constexpr double least = 0x1p-60, most = 1 - 0x1p-53, tail = 0.02425;
  p = p < least ? least : p > most ? most : p;
  if (p < tail || p > 1 - tail) {
    const double q = Kokkos::sqrt(-2 * Kokkos::log(p < tail ? p : 1 - p));
    const double x =
        (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q - 2.549732539343734e+00) * q +
          4.374664141464968e+00) *
             q +
         2.938163982698783e+00) /
        ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q + 3.754408661907416e+00) * q + 1);
    return p < tail ? x : -x;
  }
  const double q = p - 0.5, r = q * q;
  return (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r + 1.383577518672690e+02) * r -
           3.066479806614716e+01) *
              r +
          2.506628277459239e+00) *
         q /
         (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r + 6.680131188771972e+01) * r -
           1.328068155288572e+01) *
              r +
          1);
}

}  // namespace weft::kernels::detail
