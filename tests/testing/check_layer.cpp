// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/activation.hpp weft/nn/attention.hpp weft/nn/dropout.hpp weft/nn/linear.hpp weft/nn/norm.hpp
// covers: weft/testing/made_parameters.hpp weft/testing/numbers.hpp weft/testing/trial_values.hpp
// Every layer's gradients by finite differences and against several ranks; and the check itself finds a wrong backward.

#include <doctest/doctest.h>

#include <weft/nn/activation.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/norm.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/testing/made_parameters.hpp>
#include <weft/testing/numbers.hpp>
#include <weft/testing/trial_values.hpp>
#include <weft/weft.hpp>

#include "support/layers.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;
using weft_test::Branch, weft_test::EnterParallelRegion, weft_test::Recompute, weft_test::Repeat;

namespace {
constexpr std::size_t rows = 8, width = 12;
const Shape shape{rows, width};
const testing::CheckOptions two_sequences{.length = 4};

// y = x weight, with the mistake selected by `mistake`.
template <int mistake>
struct Scale {
  Parameter<> gain;
  Scale(const auto& context) : gain(context, "gain", {width}, normal(1.0)) {}
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    auto sum = sum_rows(times(g, x));
    if constexpr (mistake == 1) sum = add(sum, sum);
    gain.accumulate(context, sum);
    auto dx = times_row(g, gain.for_operand(x));
    if constexpr (mistake == 2) dx = g;
    return dx;
  }
};

// Llama's attention with a norm of queries and keys.
struct NormedAttention : Module<NormedAttention> {
  Linear<Column> query, key, value;
  HeadRmsNorm query_norm, key_norm;
  RotaryPositions rotary;
  Attention attention;
  Linear<Row> out;
  NormedAttention(Linear<Column> q, Linear<Column> k, Linear<Column> v, HeadRmsNorm qn, HeadRmsNorm kn, Attention a,
                  Linear<Row> o)
      : query(q), key(k), value(v), query_norm(qn), key_norm(kn), rotary(6), attention(a), out(o) {}
  auto forward(const auto& x) const {
    auto inside = to<Replicated<tp>>(x);
    return out(attention(rotary(std::tuple(query_norm(query(inside)), key_norm(key(inside)), value(inside)))));
  }
};
}  // namespace

TEST_CASE("a right layer passes, and each wrong gradient is found by name") {
  CHECK_NOTHROW(check_layer([](const auto& context) { return Scale<0>(context / "scale"); }, shape));
  CHECK_NOTHROW(check_layer_on<tp>(
      2, [](const auto& context) { return Scale<0>(context / "scale"); }, shape));
  CHECK_THROWS_WITH_AS(check_layer([](const auto& context) { return Scale<1>(context / "scale"); }, shape),
                       doctest::Contains("gradient of scale.gain is off"), Error);
  CHECK_THROWS_WITH_AS(check_layer([](const auto& context) { return Scale<2>(context / "scale"); }, shape),
                       doctest::Contains("gradient of the input is off"), Error);
}

TEST_CASE("linear layers") {
  CHECK_NOTHROW(check_layer([](const auto& context) { return Linear(context, width, 20); }, shape));
  CHECK_NOTHROW(
      check_layer([](const auto& context) { return Linear<Whole, StoredAs::in_out, false>(context, width, 20); }, shape));
  const auto pair = [](const auto& context) {
    return Sequential(Linear<Column>(context / "up", width, 16), Gelu{}, Linear<Row>(context / "down", 16, width));
  };
  const auto stored = [](const auto& context) {
    return Sequential(Linear<Column, StoredAs::in_out>(context / "up", width, 16), Gelu{},
                      Linear<Row, StoredAs::in_out>(context / "down", 16, width));
  };
  CHECK_NOTHROW(check_layer(pair, shape));
  CHECK_NOTHROW(check_layer(stored, shape));
  for (const int ranks : {2, 4, 8}) {
    CHECK_NOTHROW(check_layer_on<tp>(ranks, pair, shape));
    CHECK_NOTHROW(check_layer_on<tp>(ranks, stored, shape));
    CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(ranks, pair, shape)));
  }
}

TEST_CASE("norms") {
  const auto layer = [](const auto& context) { return LayerNorm(context, width); };
  const auto rms = [](const auto& context) { return RmsNorm(context, width); };
  CHECK_NOTHROW(check_layer(layer, shape));
  CHECK_NOTHROW(check_layer(rms, shape));
  // Rows cut over tp: the gradients of gain and bias are Partial, a debt that the types find.
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, layer, shape)));
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(4, rms, shape)));
}

TEST_CASE("a norm of heads, whose gain all heads share, also of heads that several ranks have alike") {
  const auto norm = [](const auto& context) { return HeadRmsNorm(context / "norm", 4, 1e-2); };
  CHECK_NOTHROW(check_layer(norm, shape));
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, norm, shape)));
  // Query, key and value of 4 and 2 heads, as in Llama's relatives; over 4 ranks each key head is on two.
  const auto attention = [](const auto& context) {
    const AttentionHeads heads{4, 2, 6};
    const auto in = [&](const char* name, std::size_t count) {
      return Linear<Column>(context / name, width, count * 6, {.standard_deviation = 0.5, .sharding = {{{count * 6, count}}}});
    };
    return NormedAttention(in("q", 4), in("k", 2), in("v", 2), HeadRmsNorm(context / "q_norm", 6),
                           HeadRmsNorm(context / "k_norm", 6), Attention(context / "attention", heads),
                           Linear<Row>(context / "out", 24, width, {.standard_deviation = 0.5, .sharding = {{{24, 4}}}}));
  };
  CHECK_NOTHROW(check_layer(attention, shape, two_sequences));
  for (const int ranks : {2, 4}) CHECK_NOTHROW(check_layer_on<tp>(ranks, attention, shape, two_sequences));
  CHECK_THROWS_WITH_AS(check_layer([](const auto& context) { return HeadRmsNorm(context, 5); }, shape),
                       doctest::Contains("the columns are not whole heads of width 5"), ShapeError);
}

TEST_CASE("a Linear that may have a bias has none by default") {
  const auto pair = [](bool bias) {
    return [bias](const auto& context) {
      return Sequential(Linear<Column>(context / "up", width, 16, {.bias = bias}), Gelu{},
                        Linear<Row>(context / "down", 16, width, {.bias = bias}));
    };
  };
  for (const bool bias : {false, true}) {
    CHECK_NOTHROW(check_layer(pair(bias), shape));
    CHECK_NOTHROW(check_layer_on<tp>(2, pair(bias), shape));
    CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, pair(bias), shape)));
  }
  DefaultDevice device;
  const Context<Compute<DefaultDevice::execution_space, double>> context(device, detail::Environment());
  CHECK_FALSE(Linear<Column>(context / "a", 4, 4, {.bias = false}).bias);
  CHECK(Linear<Column>(context / "b", 4, 4).bias);
}

TEST_CASE("activations and combinators") {
  CHECK_NOTHROW(check_layer([](const auto&) { return Gelu{}; }, shape));
  const auto gated = [](const auto& context) {
    return Sequential(
        EnterParallelRegion<tp>{},
        Branch(Linear<Column, StoredAs::out_in, false>(context / "gate", width, 16), Linear<Column>(context / "up", width, 16)),
        SwiGlu{}, Linear<Row>(context / "down", 16, width));
  };
  CHECK_NOTHROW(check_layer(gated, shape));
  CHECK_NOTHROW(check_layer_on<tp>(4, gated, shape));
  const auto residual = [](const auto& context) {
    return Residual(Sequential(LayerNorm(context / "norm", width), Linear<Column>(context / "up", width, 16), Gelu{},
                               Linear<Row>(context / "down", 16, width)));
  };
  CHECK_NOTHROW(check_layer(residual, shape));
  CHECK_NOTHROW(check_layer_on<tp>(2, residual, shape));
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, residual, shape)));
  CHECK_NOTHROW(check_layer([&](const auto& context) { return Recompute(residual(context)); }, shape));
  CHECK_NOTHROW(check_layer(
      [](const auto& context) {
        std::vector<Residual<Linear<>>> layers;
        for (int i = 0; i < 3; ++i) layers.emplace_back(Linear(context / std::to_string(i), width, width));
        return Repeat(std::move(layers));
      },
      shape));
}

TEST_CASE("dropout has the mask of one rank on every rank") {
  const auto dropout = [](const auto& context) { return Dropout(context / "dropout", 0.3); };
  CHECK_NOTHROW(check_layer(dropout, shape));
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(4, dropout, shape)));
}

TEST_CASE("attention: multi-head, grouped-query, rotary, two sequences") {
  const auto fused = [](const auto& context) {
    const AttentionHeads heads{4, 4, 3};
    const ParameterSharding::Segment segment{12, 4};
    return Sequential(
        Linear<Column>(context / "qkv", width, 36, LinearOptions{0.5, ParameterSharding{{segment, segment, segment}, false}}),
        CausalAttention(context, heads), Linear<Row>(context / "out", width, width, LinearOptions{0.5}));
  };
  CHECK_NOTHROW(check_layer(fused, shape, two_sequences));
  CHECK_NOTHROW(check_layer_on<tp>(4, fused, shape, two_sequences));
  const auto grouped = [](const auto& context) {
    const AttentionHeads heads{4, 2, 4};
    using In = Linear<Column, StoredAs::out_in, false>;
    const ParameterSharding by_query{{{16, 4}}, false}, by_key_value{{{8, 2}}, false};
    return Sequential(EnterParallelRegion<tp>{},
                      Branch(In(context / "q", width, 16, {0.5, by_query}), In(context / "k", width, 8, {0.5, by_key_value}),
                             In(context / "v", width, 8, {0.5, by_key_value})),
                      RotaryPositions(4), CausalAttention(context, heads),
                      Linear<Row>(context / "out", 16, width, LinearOptions{0.5}));
  };
  CHECK_NOTHROW(check_layer(grouped, shape, two_sequences));
  CHECK_NOTHROW(check_layer_on<tp>(2, grouped, shape, two_sequences));
}

namespace {
/// A layer in a batch whose sequences hold several documents.
template <class Inner>
struct InDocuments {
  Inner inner;
  std::shared_ptr<const std::int32_t> documents;
  auto within(const auto& context) const {
    auto here = context;
    here.env.documents = documents;
    return here;
  }
  auto forward(const auto& context, const auto& x) const { return weft::forward(inner, within(context), x); }
  auto backward(const auto& context, auto saved, const auto& g) {
    return weft::backward(inner, within(context), std::move(saved), g);
  }
  void for_each_parameter(auto&& visit) { inner.for_each_parameter(visit); }
};
}  // namespace

TEST_CASE("attention under masks and in packed documents: finite differences, tp, cp and dp against one rank") {
  static const std::vector<std::int32_t> packed{1, 1, 1, 2, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 6, 6};
  for (const bool documents : {false, true})
    for (const AttentionMask& mask :
         {AttentionMask{}, AttentionMask{.causal = false}, AttentionMask{.window = 3}, AttentionMask{false, 2}}) {
      INFO("causal " << mask.causal << ", window " << mask.window << ", documents " << documents);
      const auto make = [&](const auto& context) {
        const AttentionHeads heads{4, 2, 4};
        using In = Linear<Column, StoredAs::out_in, false>;
        const ParameterSharding by_query{{{16, 4}}, false}, by_key_value{{{8, 2}}, false};
        return InDocuments{
            Sequential(EnterParallelRegion<tp>{},
                       Branch(In(context / "q", 6, 16, {0.5, by_query}), In(context / "k", 6, 8, {0.5, by_key_value}),
                              In(context / "v", 6, 8, {0.5, by_key_value})),
                       RotaryPositions(4), Attention(context, heads, mask),
                       Linear<Row>(context / "out", 16, 6, LinearOptions{0.5})),
            std::shared_ptr<const std::int32_t>(std::shared_ptr<void>(), documents ? packed.data() : nullptr)};
      };
      const testing::CheckOptions of_eight{.length = 8};
      CHECK_NOTHROW(check_layer(make, {16, 6}, of_eight));
      CHECK_NOTHROW(check_layer_on<tp>(2, make, {16, 6}, of_eight));
      CHECK_NOTHROW(check_layer_on<cp>(4, make, {16, 6}, of_eight));
      if (!documents) CHECK_NOTHROW(check_layer_on<dp>(2, make, {16, 6}, of_eight));  // ranks of dp have other documents
    }
}
