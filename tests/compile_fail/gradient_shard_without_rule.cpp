// SPDX-License-Identifier: Apache-2.0
// The gradient of a gain, made like dx: it is labelled as rows that dp shards, has no pending sum, and would never be summed.
// expect: gradient is Shard on an axis .* on which the parameter has no such rule.*sum_rows
// mention: Shard<weft::dp, 0>
#include <weft/weft.hpp>

using namespace weft;
using Exec = Kokkos::DefaultExecutionSpace;
using Data = Context<Compute<Exec, float>, Bind<dp>>;

struct Gain {
  Parameter<> gain;
  template <class G>
  void backward_weight(const auto& context, const G& g) {
#ifdef WEFT_FAIL
    G d_gain(g.device(), {g.columns()});
    for (std::size_t row = 0; row < g.rows(); ++row)
      for (std::size_t i = 0; i < g.columns(); ++i) d_gain.data()[i] += g.data()[row * g.columns() + i];
    gain.accumulate(context, d_gain);
#else
    gain.accumulate(context, sum_rows(g));
#endif
  }
};
void go(const Data& context, Gain& layer, const Tensor<float, Exec, Shard<dp, 0>>& g) { layer.backward_weight(context, g); }
