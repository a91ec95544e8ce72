// SPDX-License-Identifier: Apache-2.0
// Rows of both operands are sharded: the product would need rows of one with all rows of the other.
// expect: matmul has no rule for these placements
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 0>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 1>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Replicated<tp>> w) { return matmul(x, w); }
#endif
