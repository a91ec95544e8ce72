// SPDX-License-Identifier: Apache-2.0
// A layer that indexes rows by the sequence, although cp shards them: on most ranks row 0 is not the first token of a sequence.
// expect: rows of a sequence are cut over cp or tp here
// mention: sequence_length\(context, x\)
// mention: positions_of\(context, x\)
#include <weft/context/global_index.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Spread = decltype(std::declval<Root>().with<Shard<cp, 0>>(cp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<cp, 0>>;
using WholeRows = Tensor<float, Kokkos::DefaultExecutionSpace, Invariant<cp>>;

#ifdef WEFT_FAIL
bool first_of_a_sequence(const Spread& context, const X&, std::size_t row) { return row % context.env.length == 0; }
#else
auto positions(const Spread& context, const X& x) { return positions_of(context, x); }
bool first_of_a_sequence(const Spread& context, const WholeRows& x, std::size_t row) {
  return row % sequence_length(context, x) == 0;
}
bool first_of_a_sequence(const Root& context, std::size_t row) { return row % context.env.length == 0; }
#endif
