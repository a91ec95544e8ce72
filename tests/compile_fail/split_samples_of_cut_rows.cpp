// SPDX-License-Identifier: Apache-2.0
// Rows that tp cuts (sequence parallelism) are no whole samples.
// expect: split_samples of rows that tp cuts
// mention: split_samples_of_cut_rows.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Block : Module<Block> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return merge_samples(exp(split_samples(x)));
#else
    return merge_samples(exp(split_samples(to<Invariant<tp>>(x))));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Shard<tp, 0>>(tp{}, Communicator()));
auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 0>> x) {
  return weft::forward(Block(), context, x).output;
}
