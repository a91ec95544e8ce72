// SPDX-License-Identifier: Apache-2.0
// Vectors added to or multiplied with rows.
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));

// section: of_cut_images
// A parameter added to a sharding without a rule gives one error.
// expect: the bias does not lie as the rows
struct Block : Module<Block> {
  Parameter<> bias;
  explicit Block(const auto& context) : bias(context, "bias", {4}, zeros) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return relu(x + bias);
#else
    return relu(to<Invariant<tp>>(x) + bias);
#endif
  }
};

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 2>> x) {
  return weft::forward(Block(context), context, x).output;
}

// section: whole_beside_columns
// Columns that tp shards, with a bias that every rank holds whole.
// expect: Parameter<Shard<tp, 0>>
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
    const auto w = weight.for_operand(inside);
    return linear<0>(inside, w, bias.for_operand(matmul(inside, w)));
  }
};

auto go(const Both& context, const Columns& columns, const X& x) { return columns.forward(context, x); }

// section: whole_beside_columns_gelu
// Columns that tp shards, with a bias that every rank holds whole.
// expect: Parameter<Shard<tp, 0>>
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
    const auto w = weight.for_operand(inside);
    return linear_gelu<0>(inside, w, bias.for_operand(matmul(inside, w)));
  }
};

auto go(const Both& context, const Columns& columns, const X& x) { return columns.forward(context, x); }

// section: column_beside_rows_cut
// One number per row of the whole, with a part of the rows.
// expect: times_column: the numbers of the rows lie as the rows do
// mention: Shard<axis, 0>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 0>> x, X<Invariant<tp>> v) { return times_column(x, v); }
#else
auto go(const Over& context, X<Shard<tp, 0>> x, X<Invariant<tp>> v) { return times_column(x, to<Shard<tp, 0>>(context, v)); }
#endif

// section: divide_column_by_partial
// Each rank would divide by its own term of a row's sum.
// expect: divide_column: the divisors are Partial
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return divide_column(x, sum_columns(x)); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) {
  return divide_column(x, to<Replicated<tp>>(context, to<Invariant<tp>>(context, sum_columns(x))));
}
#endif

// section: gain_of_cut_heads
// A gain of all heads sharded by a rule, with heads that tp shards: each rank would have another part of it.
// expect: times_heads: the gain of all heads is whole on every axis
// mention: parameter.for_operand.x.
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x, const Parameter<Shard<tp, 0>>& gain) { return times_heads(x, gain.for_operand(x)); }
#else
auto go(const Over&, X<Shard<tp, 1>> x, const Parameter<>& gain) { return times_heads(x, gain.for_operand(x)); }
#endif

// section: gain_whole_beside_columns_in_a_model
// A whole gain with the columns of a Linear<Column>, in a model: there is no second error about its gradient.
// expect: a bias or gain that every rank has whole, beside columns that an axis cuts
#ifdef WEFT_FAIL
using Gain = Parameter<>;
#else
using Gain = Parameter<Shard<tp, 0>>;
#endif

struct Scale {
  Gain gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Linear<Column>, Scale, Linear<Row>>>;
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "blocks" / std::to_string(index);
    return Residual(Sequential(LayerNorm(here / "norm", config.width), Linear<Column>(here / "up", config.width, config.width),
                               Scale{Gain(here, "gain", {config.width}, ones)},
                               Linear<Row>(here / "down", config.width, config.width)));
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: vector_whole_beside_columns_add_row
// Columns that tp shards, with a bias that every rank holds whole.
// expect: Parameter<Shard<tp, 0>>
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

// section: vector_whole_beside_columns_times_row
// Columns that tp shards, with a bias that every rank holds whole.
// expect: Parameter<Shard<tp, 0>>
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
    return times_row(y, bias.for_operand(y));
  }
};

auto go(const Both& context, const Columns& columns, const X& x) { return columns.forward(context, x); }
