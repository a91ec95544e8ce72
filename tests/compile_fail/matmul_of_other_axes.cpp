// SPDX-License-Identifier: Apache-2.0
// A weight whose type omits an axis of the input's type.
// expect: the operands name different axes
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<float, Exec, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Replicated<dp>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 0>> w) { return matmul(x, w); }
#endif
