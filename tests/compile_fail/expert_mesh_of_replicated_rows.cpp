// SPDX-License-Identifier: Apache-2.0
// Rows that several ranks share would reach the experts several times.
// expect: are not cut over every axis of the dense mesh
#include <weft/context/expert_mesh.hpp>

using namespace weft;

using Exec = Kokkos::DefaultHostExecutionSpace;

#ifdef WEFT_FAIL
auto go(const Tensor<float, Exec, Shard<dp, 0>, Invariant<tp>>& rows) { return to_expert_mesh(rows); }
#else
auto go(const Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 0>>& rows) { return to_expert_mesh(rows); }
#endif
