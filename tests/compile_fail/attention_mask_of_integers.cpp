// SPDX-License-Identifier: Apache-2.0
// It is ambiguous whether these numbers hide keys or are added to scores.
// expect: attention's mask holds std::uint8_t, 0 for a hidden key, or numbers that are added to the scores
// mention: int
#include <weft/weft.hpp>

using namespace weft;

using X = Tensor<float, Kokkos::DefaultExecutionSpace>;
template <class T>
using Mask = Tensor<T, Kokkos::DefaultExecutionSpace>;

#ifdef WEFT_FAIL
auto go(X x, Mask<std::int32_t> keep) { return attention(x, x, x, {}, keep); }
#else
auto go(X x, Mask<std::uint8_t> keep) { return attention(x, x, x, {}, keep); }
#endif
