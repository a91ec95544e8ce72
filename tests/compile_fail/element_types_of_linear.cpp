// SPDX-License-Identifier: Apache-2.0
// A bias in double with a product in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;
using W = Tensor<bfloat16, Exec, Replicated<dp>>;

#ifdef WEFT_FAIL
auto go(X x, W w, Tensor<double, Exec, Replicated<dp>> b) { return linear<0>(x, w, b); }
#else
auto go(X x, W w, W b) { return linear<0>(x, w, b); }
#endif
