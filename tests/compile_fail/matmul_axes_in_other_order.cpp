// SPDX-License-Identifier: Apache-2.0
// A weight that names its axes in another order than the input.
// expect: name their axes in different order
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
using X = Tensor<float, Exec, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Exec, Shard<tp, 0>, Replicated<dp>> w) { return matmul(x, w); }
#else
auto go(X x, Tensor<float, Exec, Replicated<dp>, Shard<tp, 0>> w) { return matmul(x, w); }
#endif
