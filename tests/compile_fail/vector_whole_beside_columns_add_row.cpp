// SPDX-License-Identifier: Apache-2.0
// Columns that tp shards, with a bias that every rank holds whole.
// expect: Parameter<Shard<tp, 0>>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
using Bias = Parameter<>;
#else
using Bias = Parameter<Shard<tp, 0>>;
#endif

struct Columns {
  Parameter<Shard<tp, 0>> weight;
  Bias bias;
  auto forward(const auto& context, const auto& x) const {
    const auto inside = to<Replicated<tp>>(context, x);
    const auto y = matmul(inside, weight.for_operand(inside));
    return add_row(y, bias.for_operand(y));
  }
};

auto go(const Both& context, const Columns& columns, const X& x) { return columns.forward(context, x); }
