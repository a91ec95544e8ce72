// SPDX-License-Identifier: Apache-2.0
#pragma once
// The carries and the rounding of exact sums. Definitions for kernels/exact_sum.hpp.

#include <weft/core/inline.hpp>
#include <weft/kernels/exact_sum.hpp>

namespace weft::kernels {

WEFT_INLINE void carry(std::span<std::int64_t> words) {
  for (std::size_t i = 0; i + 3 < exact_sum_words; ++i) {
    words[i + 1] += words[i] >> 32;
    words[i] &= 0xffffffff;
  }
}

WEFT_INLINE double exact_value(std::span<std::int64_t> words) {
  if (words[exact_sum_words - 2] != 0 || words[exact_sum_words - 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  carry(words);
  double value = 0;
  for (std::size_t i = exact_sum_words - 2; i-- > 0;) value += std::ldexp(double(words[i]), int(32 * i) - 1074);
  return value;
}

}  // namespace weft::kernels
