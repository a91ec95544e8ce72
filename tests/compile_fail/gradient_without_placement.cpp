// SPDX-License-Identifier: Apache-2.0
// A gradient in a tensor without placements: its pending sum over dp is unknown.
// expect: gradient has no placement on an axis that is in force
#include <weft/weft.hpp>

using namespace weft;
using Exec = Kokkos::DefaultExecutionSpace;
using Data = Context<Compute<Exec, float>, Bind<dp>>;

void go(const Data& context, Parameter<>& gain, const Tensor<float, Exec, Shard<dp, 0>>& g) {
#ifdef WEFT_FAIL
  Tensor<float, Exec> d_gain(g.device(), {g.columns()});
#else
  Tensor<float, Exec, Partial<dp>> d_gain(g.device(), {g.columns()});
#endif
  for (std::size_t i = 0; i < g.size(); ++i) d_gain.data()[i % g.columns()] += g.data()[i];
  gain.accumulate(context, d_gain);
}
