// SPDX-License-Identifier: Apache-2.0
// Positions that another axis than cp cuts do not become rows.
// expect: merge_samples of .samples, positions, .... that another axis than cp cuts
// mention: merge_samples_of_cut_positions.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Block : Module<Block> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return exp(merge_samples(x));
#else
    return exp(merge_samples(to<Invariant<tp>>(x)));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));
auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 1>> x) {
  return weft::forward(Block(), context, x).output;
}
