// SPDX-License-Identifier: Apache-2.0
// Each rank would attend only to its own tokens.
// expect: attention needs all tokens and the whole width of a head
// mention: cut heads, dim 0
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<tp, 1>> x) { return attention(x, x, x); }
#else
auto go(X<Shard<tp, 0>> x) { return attention(x, x, x); }
#endif
