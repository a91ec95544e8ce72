// SPDX-License-Identifier: Apache-2.0
// Gradients with the placement of another parameter.
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Exec = Kokkos::DefaultExecutionSpace;
using Data = Context<Compute<Exec, float>, Bind<dp>>;

// section: forgotten_all_reduce_backward
// A user's column-parallel layer returns its input's gradient without the sum over tp.
// expect: not the dual of its input .Replicated <-> Partial.: a collective is missing
// mention: Partial<weft::tp>
struct Up {
  Parameter<Shard<tp, 0>> weight;
  auto forward(const auto& context, const auto& x) const {
    auto inside = to<Replicated<tp>>(context, x);
    return Result{matmul(inside, weight.for_operand(inside)), inside};
  }
  template <class Context, class Inside, class G>
  auto backward(const Context& context, Inside x, const G& g) {
    weight.accumulate(context, matmul_weight_gradient(g, x));
    auto dx = matmul_input_gradient(g, weight.for_operand(x));
#ifdef WEFT_FAIL
    return dx;
#else
    return to<Invariant<tp>>(context, dx);
#endif
  }
};

void go() {
  testing::check_layer_on<tp, Invariant<tp>>(2,
                                             [](const auto& context) {
                                               return Up{{context, "weight", {32, 8}, normal(0.02)}};
                                             },
                                             {4, 8});
}

// section: forgotten_all_reduce_forward
// A row-parallel product is passed directly to a norm, without the sum over tp.
// expect: not linear, but its input is Partial
// mention: Partial<weft::tp>
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
void go(const Both& context, X x) {
  Sequential block(Linear<Column>(context, 8, 32), Gelu{}, Linear<Row>(context, 32, 8), LayerNorm(context, 8));
  weft::forward(block, context, x);
}
#else
void go(const Both& context, X x) {
  Sequential block(Residual(Sequential(Linear<Column>(context, 8, 32), Gelu{}, Linear<Row>(context, 32, 8))),
                   LayerNorm(context, 8));
  weft::forward(block, context, x);
}
#endif

// section: forgotten_enter_parallel_region
// A column-parallel product without entering the parallel region: the gradient of x would lose a sum.
// expect: enter the parallel region first
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Parameter<Shard<tp, 0>>& weight, X x) { return matmul(x, weight.for_operand(x)); }
#else
auto go(const Both& context, const Parameter<Shard<tp, 0>>& weight, X x) {
  auto inside = to<Replicated<tp>>(context, x);
  return matmul(inside, weight.for_operand(inside));
}
auto use(const Both& context, const Parameter<Shard<tp, 0>>& weight, X x) { return go(context, weight, x); }
#endif

// section: not_a_shard
// A parameter that tp shards along dim 0 gets a gradient sharded along dim 1.
// expect: is cut by its rule Shard<axis, dim>, but its gradient is not that Shard
using Both = Context<Compute<Exec, float>, Bind<dp>, Bind<tp>>;

#ifdef WEFT_FAIL
constexpr int dim = 1;
#else
constexpr int dim = 0;
#endif

void go(const Both& context, Parameter<Shard<tp, 0>>& weight, const Tensor<float, Exec, Partial<dp>, Shard<tp, dim>>& g) {
  weight.accumulate(context, g);
}

// section: shard_without_rule
// The gradient of a gain, made like dx: it is labelled as rows that dp shards, has no pending sum, and would never be summed.
// expect: gradient is Shard on an axis .* on which the parameter has no such rule.*sum_rows
// mention: Shard<weft::dp, 0>
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

// section: summed_over_dp
// A gradient that the layer itself sums over dp: DataParallel would add it up once more.
// expect: Invariant on the data axis, which sums it once more: leave it Partial
void go(const Data& context, Parameter<>& gain, const Tensor<float, Exec, Shard<dp, 0>>& g) {
#ifdef WEFT_FAIL
  gain.accumulate(context, to<Invariant<dp>>(context, sum_rows(g)));
#else
  gain.accumulate(context, sum_rows(g));
#endif
}

// section: without_placement
// A gradient in a tensor without placements: its pending sum over dp is unknown.
// expect: gradient has no placement on an axis that is in force
void go(const Data& context, Parameter<>& gain, const Tensor<float, Exec, Shard<dp, 0>>& g) {
#ifdef WEFT_FAIL
  Tensor<float, Exec> d_gain(g.device(), {g.columns()});
#else
  Tensor<float, Exec, Partial<dp>> d_gain(g.device(), {g.columns()});
#endif
  for (std::size_t i = 0; i < g.size(); ++i) d_gain.data()[i % g.columns()] += g.data()[i];
  gain.accumulate(context, d_gain);
}

// section: raw_all_reduce
// A collective on the memory of a placed tensor: the sum is done, but the type is still Partial, so the next `to` would add
// again.
// expect: a collective on the memory of a tensor with placements.*to<Placement>\(context, x\).*raw\(x\)
// mention: Partial<weft::tp>
using OnTp = decltype(std::declval<Root>().with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;

#ifdef WEFT_FAIL
auto go(const OnTp& context, X x) {
  context.comm(tp{}).all_reduce(x);
  return to<Invariant<tp>>(context, x);
}
#else
auto go(const OnTp& context, X x) {
  context.comm(tp{}).all_reduce(raw(x), Reduction::max);  // spelled out
  return to<Invariant<tp>>(context, x);
}
#endif

// section: replicated_gradient
// A gradient that is equal on every rank would be counted once per rank.
// expect: would count it several times
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
void go(const Both& context, Parameter<>& gain, Tensor<float, Kokkos::DefaultExecutionSpace, Partial<dp>, Replicated<tp>> g) {
  gain.accumulate(context, g);
}
#else
void go(const Both& context, Parameter<>& gain, Tensor<float, Kokkos::DefaultExecutionSpace, Partial<dp>, Replicated<tp>> g) {
  gain.accumulate(context, to<Invariant<tp>>(context, g));
}
#endif
