// SPDX-License-Identifier: Apache-2.0
// A weight in double with an input in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;
using W = Tensor<bfloat16, Exec, Replicated<dp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<double, Exec, Replicated<dp>> y) { return matmul(x, y); }
#else
auto go(X x, W y) { return matmul(x, y); }
#endif
