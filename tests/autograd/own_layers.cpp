// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/heads.hpp weft/autograd/recorded_layer.hpp
// User-defined layers of typed operations only, backward by hand: an RMS norm, a norm of each head with one gain for
// all (Qwen3's of query and key), a head with a z-loss. Checked by themselves, and in a model over dp, tp, sp, cp and pp
// against one rank.

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/recorded_layer.hpp>
#include <weft/operations/heads.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/context.hpp"
#include "support/layers.hpp"

using namespace weft;

namespace {

struct InverseRoot {
  double epsilon;
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return A(1) / Kokkos::sqrt(x + A(epsilon));
  }
};
struct Cube {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return x * x * x;
  }
};

/// y = x / sqrt(mean(x²) + epsilon) gain, by row.
struct OwnNorm {
  Parameter<> gain;
  std::size_t width;
  OwnNorm(const auto& context, std::size_t columns) : gain(context, "gain", {columns}, normal(1)), width(columns) {}

  auto forward(const auto&, const auto& x) const {
    const auto inverse = map(mean_columns(square(x)), InverseRoot{1e-5});  // [tokens]
    return Result{times_row(times_column(x, inverse), gain.for_operand(x)), std::pair{x, inverse}};
  }
  template <class X, class R, class G>
  auto backward(const auto& context, std::pair<X, R> saved, const G& g) {
    const auto& [x, inverse] = saved;
    gain.accumulate(context, sum_rows(times(times_column(x, inverse), g)));
    const auto dn = times_row(g, gain.for_operand(x));
    const auto d_inverse = sum_columns(times(x, dn), Of::gradients);
    const auto d_mean = scale(times(map(inverse, Cube{}), d_inverse), -0.5);
    return add(times_column(dn, inverse), scale(times(x, mean_columns_gradient(x, d_mean)), 2));
  }
};

/// The same of each head, x [tokens, heads * width], with one gain [width] for all heads.
struct HeadNorm {
  Parameter<> gain;
  std::size_t width;
  HeadNorm(const auto& context, std::size_t head_width) : gain(context, "gain", {head_width}, normal(1)), width(head_width) {}

  auto forward(const auto&, const auto& x) const {
    const auto heads = split_heads(x, width);                                    // [tokens, heads / tp, width]
    const auto inverse = map(mean_each_head(square(heads)), InverseRoot{1e-5});  // [tokens, heads / tp]
    return Result{merge_heads(times_heads(times_each_head(heads, inverse), gain.for_operand(heads))), std::pair{heads, inverse}};
  }
  template <class X, class R, class G>
  auto backward(const auto& context, std::pair<X, R> saved, const G& gradient) {
    const auto& [x, inverse] = saved;
    const auto g = split_heads(gradient, width);
    gain.accumulate(context, sum_heads(times(times_each_head(x, inverse), g), Of::gradients));
    const auto dn = times_heads(g, gain.for_operand(x));
    const auto d_mean = scale(times(map(inverse, Cube{}), sum_each_head(times(x, dn))), -0.5);
    return merge_heads(add(times_each_head(dn, inverse), scale(times(x, mean_each_head_gradient(x, d_mean)), 2)));
  }
};

/// Norms of query and key before rotary positions.
struct QueryKeyNorm {
  HeadNorm query, key;
  QueryKeyNorm(const auto& context, std::size_t width) : query(context / "query", width), key(context / "key", width) {}

  template <class X>
  auto forward(const auto& context, const std::tuple<X, X, X>& in) const {
    auto q = query.forward(context, std::get<0>(in));
    auto k = key.forward(context, std::get<1>(in));
    return Result{std::tuple{q.output, k.output, std::get<2>(in)}, std::pair{q.saved, k.saved}};
  }
  template <class Q, class K, class G>
  auto backward(const auto& context, std::pair<Q, K> saved, const std::tuple<G, G, G>& g) {
    auto dq = query.backward(context, std::move(saved.first), std::get<0>(g));
    auto dk = key.backward(context, std::move(saved.second), std::get<1>(g));
    return std::tuple{dq, dk, std::get<2>(g)};
  }
};

/// Cross-entropy, and a penalty on log Σ exp of the logits.
struct ZLossHead {
  OwnNorm norm;
  Parameter<Shard<tp, 0>> table;
  static constexpr double factor = 0.05;
  ZLossHead(const auto& context, std::size_t vocabulary, std::size_t width)
      : norm(context / "norm", width), table(context, "table", {vocabulary, width}, normal(0.2), ParameterSharding{{}, true}) {}

  auto logits(const auto& context, const auto& x) const {
    const auto inside = to<Replicated<tp>>(context, norm.forward(context, x).output);
    return matmul(inside, table.for_operand(inside));
  }
  auto forward(const auto& context, const auto& x, const auto& targets) const {
    const auto vocabulary = table.state().global()[0];
    auto normed = norm.forward(context, x);
    const auto inside = to<Replicated<tp>>(context, normed.output);
    const auto z = matmul(inside, table.for_operand(inside));  // [tokens, vocabulary / tp]
    auto cross = cross_entropy(context, z, targets, vocabulary);
    const auto lse = log_sum_exp(context, z, vocabulary);  // [tokens]
    return Result{cross.output + sum_losses(context, scale(square(lse), factor), targets),
                  std::tuple{normed.saved, normed.output, z, lse, cross.saved, targets}};
  }
  template <class N, class Y, class Z, class L, class D, class T, class G>
  auto backward(const auto& context, std::tuple<N, Y, Z, L, D, T> saved, const G& g) {
    auto& [norm_saved, normed, z, lse, difference, targets] = saved;
    const auto d_lse = mask_rows(scale(times_scalar(lse, g), 2 * factor), targets);
    const auto dz = add(times_scalar(difference, to<Replicated<tp>>(context, g)),
                        log_sum_exp_gradient(context, z, table.state().global()[0], lse, d_lse));
    const auto inside = to<Replicated<tp>>(context, normed);
    table.accumulate(context, matmul_weight_gradient(dz, inside));
    return norm.backward(context, std::move(norm_saved),
                         to_layout_of<gradient_t<Y>>(context, matmul_input_gradient(dz, table.for_operand(inside))));
  }
};

/// Grouped-query attention with normed queries and keys, and a SwiGLU.
template <detail::Real S>
struct OwnModel {
  struct Config {
    std::size_t vocabulary = batch_vocabulary_, layers = 4, width = 32, heads = 8, kv_heads = 2, sequence = 8;
    double dropout = 0.1;
    static constexpr std::size_t batch_vocabulary_ = weft_test::batch_vocabulary;
  };
  using scalar = S;
  using Front = Embedding;
  using In = Linear<Column, StoredAs::out_in, false>;
  using Out = Linear<Row, StoredAs::out_in, false>;
  using Block = Sequential<
      Residual<Sequential<OwnNorm, weft_test::EnterParallelRegion<tp>, weft_test::Branch<In, In, In>, QueryKeyNorm,
                          RotaryPositions, CausalAttention, Dropout, Out>>,
      Residual<Sequential<OwnNorm, weft_test::EnterParallelRegion<tp>, weft_test::Branch<In, In>, SwiGlu, Dropout, Out>>>;
  using Back = ZLossHead;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "blocks" / std::to_string(index);
    const std::size_t head = config.width / config.heads, kv = config.kv_heads * head;
    const AttentionHeads heads{config.heads, config.kv_heads, head};
    const LinearOptions query{0.2, {{{config.width, config.heads}}, false}}, key{0.2, {{{kv, config.kv_heads}}, false}};
    return Block(
        Residual(Sequential(OwnNorm(here / "norm1", config.width), weft_test::EnterParallelRegion<tp>{},
                            weft_test::Branch(In(here / "q", config.width, config.width, query),
                                              In(here / "k", config.width, kv, key), In(here / "v", config.width, kv, key)),
                            QueryKeyNorm(here / "norm", head), RotaryPositions(head), CausalAttention(here, heads),
                            Dropout(here / "inner", config.dropout), Out(here / "o", config.width, config.width, query))),
        Residual(Sequential(OwnNorm(here / "norm2", config.width), weft_test::EnterParallelRegion<tp>{},
                            weft_test::Branch(In(here / "gate", config.width, 48), In(here / "up", config.width, 48)), SwiGlu{},
                            Dropout(here / "hidden", config.dropout), Out(here / "down", 48, config.width))));
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back(context / "head", config.vocabulary, config.width);
  }
};

// A Column layer, norms of its heads, and a Row layer; several ranks share some of the `kv` heads.
template <class Context>
auto head_block(const Context& context, std::size_t heads) {
  const LinearOptions cut{0.5, {{{heads * 4, heads}}, false}};
  return Residual(Sequential(Linear<Column, StoredAs::out_in, false>(context / "in", 8, heads * 4, cut),
                             HeadNorm(context / "heads", 4),
                             Linear<Row, StoredAs::out_in, false>(context / "out", heads * 4, 8, cut)));
}

template <class M>
using OverTensor = DataParallel<ContextParallel<TensorParallel<PipelineParallel<M, schedule::OneForwardOneBackward>>, Ring>>;
template <class M>
using OverSequence = DataParallel<ContextParallel<SequenceParallel<PipelineParallel<M, schedule::OneForwardOneBackward>>, Ring>>;

}  // namespace

TEST_CASE("an RMS norm of one's own") {
  const auto make = [](const auto& context) { return OwnNorm(context / "norm", 8); };
  CHECK(testing::check_layer(make, {8, 8}).compared > 8);
  CHECK(testing::check_layer_on<tp>(2, make, {8, 8}).compared > 8);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(4, make, {8, 8}).compared > 8);
}

TEST_CASE("a norm of each head with one gain, between a Column and a Row layer") {
  const auto make = [](const auto& context) { return head_block(context, 4); };
  CHECK(testing::check_layer(make, {8, 8}).compared > 8);
  for (const int ranks : {2, 4}) {
    CHECK(testing::check_layer_on<tp>(ranks, make, {8, 8}).compared > 8);
    CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(ranks, make, {8, 8}).compared > 8);
  }
}

TEST_CASE("a model of such layers over dp, tp, sp, cp and pp is one rank") {
  using Model = OwnModel<double>;
  const Model::Config config;
  const auto reference = weft_test::reference_of<Model>(config);
  for (const auto& [world, degrees] : std::vector<std::pair<std::size_t, Degrees>>{{1, {}},
                                                                                   {2, {}},
                                                                                   {2, {.tp = 2}},
                                                                                   {4, {.tp = 4}},
                                                                                   {2, {.cp = 2}},
                                                                                   {2, {.pp = 2}},
                                                                                   {4, {.tp = 2}},
                                                                                   {8, {.tp = 4, .cp = 2}},
                                                                                   {8, {.tp = 2, .cp = 2, .pp = 2}},
                                                                                   {8, {.tp = 4, .pp = 2}}}) {
    weft_test::check_context<OverTensor<Model>>(config, reference, world, degrees);
    if (degrees.tp > 1) weft_test::check_context<OverSequence<Model>>(config, reference, world, degrees);
  }
}
