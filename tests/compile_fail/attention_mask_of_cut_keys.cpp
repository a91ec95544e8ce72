// SPDX-License-Identifier: Apache-2.0
// Each rank would have the mask for only some of the keys.
// expect: attention's mask is whole, or cut along dim 0 as the heads are
// mention: Shard
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<std::uint8_t, Shard<tp, 2>> keep) { return attention(x, x, x, {}, keep); }
#else
auto go(X<float, Shard<tp, 0>> x, X<std::uint8_t, Shard<tp, 0>> keep) { return attention(x, x, x, {}, keep); }
#endif
