// SPDX-License-Identifier: Apache-2.0
// Attention.
#include <weft/context/global_index.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

// section: mask_before_options
// The options of attention come before its mask.
// expect: attention cannot be called with these arguments: write attention.q, k, v,
inline constexpr data::Field<"input", float> input;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {2, 2}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto q = reshape(layer(x), {2, 2, 4});
    auto h = attention(q, q, q, beside(q, table), {.causal = false});
    return reshape(silu(h), {4, 4});
  }
#else
  auto forward(const auto& x) const {
    auto q = reshape(layer(x), {2, 2, 4});
    auto h = attention(q, q, q, {.causal = false}, beside(q, table));
    return reshape(silu(h), {4, 4});
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: mask_of_cut_keys
// Each rank would have the mask for only some of the keys.
// expect: attention's mask is whole, or cut along dim 0 as the heads are
// mention: Shard
template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<std::uint8_t, Shard<tp, 2>> keep) { return attention(x, x, x, {}, keep); }
#else
auto go(X<float, Shard<tp, 0>> x, X<std::uint8_t, Shard<tp, 0>> keep) { return attention(x, x, x, {}, keep); }
#endif

// section: mask_of_integers
// It is ambiguous whether these numbers hide keys or are added to scores.
// expect: attention's mask holds std::uint8_t, 0 for a hidden key, or numbers that are added to the scores
// mention: int
using X = Tensor<float, Kokkos::DefaultExecutionSpace>;

template <class T>
using Mask = Tensor<T, Kokkos::DefaultExecutionSpace>;

#ifdef WEFT_FAIL
auto go(X x, Mask<std::int32_t> keep) { return attention(x, x, x, {}, keep); }
#else
auto go(X x, Mask<std::uint8_t> keep) { return attention(x, x, x, {}, keep); }
#endif

// section: mask_of_whole_heads
// Each rank would use another part of a mask for heads that all ranks have.
// expect: attention's mask is whole, or cut along dim 0 as the heads are
// mention: to<Replicated<axis>>
template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Invariant<tp>> x, X<float, Shard<tp, 0>> bias) { return attention(x, x, x, {}, bias); }
#else
auto go(X<float, Shard<tp, 0>> x, X<float, Shard<tp, 0>> bias) { return attention(x, x, x, {}, bias); }
#endif

// section: of_cut_tokens
// Each rank would attend only to its own tokens.
// expect: attention needs all tokens and the whole width of a head
// mention: cut heads, dim 0
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<tp, 1>> x) { return attention(x, x, x); }
#else
auto go(X<Shard<tp, 0>> x) { return attention(x, x, x); }
#endif

// section: gradient_of_shared_heads
// One gain for all heads, whose columns tp cuts: its gradient is a term of the sum over tp, and not this rank's piece of a cut
// parameter.
// expect: gradient is Shard on an axis .* on which the parameter has no such rule
// mention: Shard<weft::tp, 0>
using Exec = Kokkos::DefaultExecutionSpace;
using Both = Context<Compute<Exec, float>, Bind<dp>, Bind<tp>>;
using ByHead = Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 1>>;

void go(const Both& context, Parameter<>& temperature, Parameter<Shard<tp, 0>>& own, const ByHead& g) {
#ifdef WEFT_FAIL
  const auto sums = sum_rows(g);  // [columns / tp], Partial<dp>, Shard<tp, 0>
  temperature.accumulate(context, sums);
  (void)own;
#else
  own.accumulate(context, sum_rows(g));  // a gain for each column, cut as the columns are
  (void)temperature;
#endif
}

// section: head_norm_of_partial
// A norm of heads that are terms of a sum; of heads that an axis cuts it is right.
// expect: this operation is not linear, but its input is Partial
// mention: attention.cpp:
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Partial<tp>> x, const HeadRmsNorm& norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, const HeadRmsNorm& norm) { return norm.forward(context, x).output; }
#endif

// section: length_of_cut_rows
// The same under sequence parallelism, requested with the tensor with sharded rows.
// expect: rows of a sequence are cut over cp or tp in this tensor
// mention: positions_of\(context, x\)
using Spread = decltype(std::declval<Root>().with<Shard<dp, 0>>(dp{}, Communicator()).with<Shard<tp, 0>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Shard<tp, 0>>;
using WholeRows = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
std::size_t go(const Spread& context, const X& x) { return sequence_length(context, x); }
#else
std::size_t go(const Spread& context, const WholeRows& x) { return sequence_length(context, x); }
#endif

// section: length_of_cut_sequences
// A layer that indexes rows by the sequence, although cp shards them: on most ranks row 0 is not the first token of a sequence.
// expect: rows of a sequence are cut over cp or tp here
// mention: sequence_length\(context, x\)
// mention: positions_of\(context, x\)
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
