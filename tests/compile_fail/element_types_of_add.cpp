// SPDX-License-Identifier: Apache-2.0
// A term in double and one in bfloat16.
// expect: different element types, such as double beside bfloat16: .*Context::scalar
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<bfloat16, Exec, Shard<dp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<double, Exec, Shard<dp, 0>> y) { return add(x, y); }
#else
auto go(X x, X y) { return add(x, y); }
#endif
