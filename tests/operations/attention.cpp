// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/attention.hpp
// Attention as an operation: by finite differences and over ranks under every mask, including learned and computed ones; a
// broadcast mask compared with the same mask written out; a different number of queries and keys; and its errors.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <weft/operations/attention.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/formula.hpp"

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
template <class T>
using Local = Tensor<T, Exec>;

template <class T>
Local<T> tensor(DefaultDevice& device, const Shape& shape, const std::vector<T>& values) {
  Local<T> x(device, shape);
  copy_from_host(x, std::span<const T>(values));
  return x;
}
template <class T>
std::vector<T> drawn(std::size_t n, std::uint64_t key) {
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(T(Philox::normal(key, i)));
  return values;
}
std::vector<std::uint8_t> coins(std::size_t n, std::uint64_t key) {
  std::vector<std::uint8_t> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(Philox::normal(key, i) < 0.4);
  return values;
}

/// Attention of x [heads, tokens, width] as query and, changed, as key and value.
template <class... Mask>
struct SelfAttention {
  AttentionMask pattern;
  std::tuple<Mask...> hidden;

  static auto key(const auto& x) { return scale(x, 0.7); }
  static auto value(const auto& x) { return square(x); }
  auto forward(const auto&, const auto& x) const {
    auto seen = std::apply([&](const auto&... m) { return attention(x, key(x), value(x), pattern, m...); }, hidden);
    auto output = seen.output;
    return Result{output, std::pair{x, seen}};
  }
  auto backward(const auto&, auto saved, const auto& g) const {
    const auto& x = saved.first;
    const auto& seen = saved.second;
    const auto d =
        std::apply([&](const auto&... m) { return attention_gradient(x, key(x), value(x), seen, g, pattern, m...); }, hidden);
    return add(add(std::get<0>(d), scale(std::get<1>(d), 0.7)), scale(times(std::get<2>(d), x), 2));
  }
  void for_each_parameter(auto&&) {}
};

std::string refusal(auto&& act) {
  try {
    act();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "";
}

/// The same in a Module, with an automatic backward. Keys are hidden if the sum of the first head's numbers is not positive.
struct OwnAttention : Module<OwnAttention> {
  AttentionMask pattern;
  bool with_mask = false;
  auto forward(const auto& x) const {
    if (!with_mask) return attention(x, 0.7 * x, square(x), pattern);
    const auto tokens = x.shape()[1];
    auto keep = greater(reshape(sum<2>(slice<0>(x, 0, 1)), {1, 1, tokens}), 0);
    return attention(x, 0.7 * x, square(x), pattern, keep);
  }
};

/// A constant of x's axes that every rank has whole.
struct Whole {
  template <class P>
  using of = std::conditional_t<(shard_dim<P> >= 0), Replicated<typename P::axis>, P>;
};
template <class T, class C, class X>
auto constant(const Variable<C, X>& x, const Shape& shape, const std::vector<T>& values) {
  detail::ruled_t<Whole, X, T> made(x.value().device(), shape);
  copy_from_host(made, std::span<const T>(values));
  return Variable<C, decltype(made)>(made, x.tape());
}

/// Attention whose mask is a parameter, of x or of constants.
struct LearnedBias : Module<LearnedBias> {
  AttentionMask pattern;
  bool of_constants = false;
  Parameter<> bias;
  LearnedBias(const auto& context, const AttentionMask& mask, const Shape& shape)
      : pattern(mask), bias(context, "bias", shape, normal(1)) {}
  template <class C, class X>
  Variable<C, X> forward(const Variable<C, X>& x) const {
    if (of_constants) {
      const Variable<C, X> q(relabel<X>(tensor<double>(x.value().device(), x.shape(), drawn<double>(x.shape().size(), 9))),
                             x.tape());
      return attention(q, 0.7 * q, square(q), pattern, bias);
    }
    return attention(x, 0.7 * x, square(x), pattern, bias);
  }
};
/// A bias of each head, cut as heads are.
struct HeadBias : Module<HeadBias> {
  Parameter<Shard<tp, 0>> bias;
  HeadBias(const auto& context, const Shape& shape) : bias(context, "bias", shape, normal(1)) {}
  auto forward(const auto& x) const { return attention(x, 0.7 * x, square(x), {}, 2 * beside(x, bias)); }
};
/// ALiBi (arXiv:2108.12409) with a slope that is learned: -slope[head] times the distance.
struct LearnedSlopes : Module<LearnedSlopes> {
  Parameter<Shard<tp, 0>> slope;
  LearnedSlopes(const auto& context, std::size_t heads) : slope(context, "slope", {heads, 1}, normal(1)) {}
  auto forward(const auto& x) const {
    const std::size_t heads = x.shape()[0], tokens = x.shape()[1];
    std::vector<double> distances;
    for (std::size_t i = 0; i < tokens * tokens; ++i) distances.push_back(double(i % tokens) - double(i / tokens));
    const auto bias = matmul(beside(x, slope), constant(x, {tokens * tokens, 1}, distances));  // [heads, tokens²]
    return attention(x, 0.7 * x, square(x), {}, reshape(bias, {heads, tokens, tokens}));
  }
};
/// A number for each head and distance (T5, arXiv:1910.10683).
struct RelativePositions : Module<RelativePositions> {
  Parameter<Shard<tp, 1>> table;
  RelativePositions(const auto& context, std::size_t tokens, std::size_t heads)
      : table(context, "table", {2 * tokens - 1, heads}, normal(1)) {}
  auto forward(const auto& x) const {
    const std::size_t heads = x.shape()[0], tokens = x.shape()[1];
    std::vector<std::int32_t> places;
    for (std::size_t i = 0; i < tokens * tokens; ++i) places.push_back(std::int32_t(i / tokens + tokens - 1 - i % tokens));
    const auto numbers = index_select(beside(x, table), constant(x, {tokens * tokens}, places));  // [tokens², heads]
    return attention(x, 0.7 * x, square(x), {.causal = false}, reshape(transpose<0, 1>(numbers), {heads, tokens, tokens}));
  }
};

}  // namespace

TEST_CASE("a learned mask has a gradient, summed over the heads and queries that share it") {
  for (const AttentionMask& pattern : {AttentionMask{}, AttentionMask{.causal = false}, AttentionMask{.window = 3}})
    for (const Shape& shape :
         {Shape{1, 1, 6}, Shape{1, 6, 6}, Shape{1, 2, 1, 6}, Shape{1, 2, 6, 6}}) {  // two: the heads of a sample
      const auto make = [&](const auto& context) { return LearnedBias(context / "own", pattern, shape); };
      const testing::CheckReport report = testing::check_layer(make, {4, 6, 3});
      CHECK(report.compared == 24 + std::min<std::size_t>(24, shape.size()));
      CHECK(report.error < 1e-6);
      CHECK(testing::check_layer_on<dp>(2, make, {4, 6, 3}).compared != 0);
      CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {4, 6, 3}).compared != 0);
      CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, make, {4, 6, 3}).compared != 0);
    }
  const auto alone = [](const auto& context) {
    LearnedBias layer(context / "own", {}, {4, 6, 6});
    layer.of_constants = true;
    return layer;
  };
  CHECK(testing::check_layer(alone, {4, 6, 3}).error < 1e-6);
}

TEST_CASE("masks of heads that tp cuts: a bias of each head, learned slopes, relative positions") {
  const auto bias = [](const auto& context) { return HeadBias(context / "bias", {4, 6, 6}); };
  const auto slopes = [](const auto& context) { return LearnedSlopes(context / "slopes", 4); };
  const auto relative = [](const auto& context) { return RelativePositions(context / "relative", 6, 4); };
  CHECK(testing::check_layer(bias, {4, 6, 3}).error < 1e-6);
  CHECK(testing::check_layer(slopes, {4, 6, 3}).error < 1e-6);
  CHECK(testing::check_layer(relative, {4, 6, 3}).error < 1e-6);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, bias, {4, 6, 3}).compared > 144);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, slopes, {4, 6, 3}).compared != 0);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, relative, {4, 6, 3}).compared != 0);
}

TEST_CASE("a mask that is computed from x, placed as the heads, or whole beside cut and Replicated ones") {
  const Shape shape{4, 6, 3};
  weft_test::check_rows(  // per sample, for its two heads, and for each head
      [](const auto& x) {
        const std::size_t samples = x.shape()[0] / 2;
        const auto of_heads = reshape(sum<2>(square(x)), {samples, 2, 1, 6});
        const auto of_samples = reshape(sum<1>(of_heads), {samples, 1, 1, 6});
        return attention(x, x, x, {}, of_samples) * attention(x, x, x, {.causal = false}, of_heads);
      },
      shape);
  weft_test::check_rows(
      [](const auto& x) {
        return attention(x, x, x, {}, reshape(sum<2>(square(x)), {x.shape()[0], 1, 6}));
      },
      shape);
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto mask = reshape(sum<2>(slice<0>(to<Invariant<dp>>(x * x), 0, 2)), {1, 2, 6});
        const auto heads = to<Shard<tp, 0>>(slice<1>(x, 0, 2)), keys = to<Shard<tp, 0>>(x);
        return to<Invariant<tp>>(attention(heads, keys, keys, {.causal = false}, mask));
      },
      shape);
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto mask = reshape(sum<2>(x * x), {4, 1, 6});
        const auto inside = to<Replicated<tp>>(x);
        return attention(x, x, x, {}, to<Replicated<tp>>(mask)) +
               to<Invariant<tp>>(to<Partial<tp>>(attention(inside, inside, inside, {}, mask)));
      },
      shape);
}

TEST_CASE("the gradient of a mask against numbers of mpmath") {
  DefaultDevice device;
  const auto q = weft_test::tensor_of<double>(device, {2, 2, 2}, {.5, -1, 1.5, .25, -.75, .5, .25, 1}),
             k = weft_test::tensor_of<double>(device, {2, 3, 2}, {1, .5, -.5, .25, .75, -1, .5, 1.5, -1, .5, .25, -.25}),
             v = weft_test::tensor_of<double>(device, {2, 3, 2}, {2, -1, .5, 1.5, -1, .75, -.5, 1, 1.25, .5, .75, -2}),
             g = weft_test::tensor_of<double>(device, {2, 2, 2}, {1, -.5, .25, 2, -1, .5, .75, 1.5}),
             bias = weft_test::tensor_of<double>(device, {1, 2, 3}, {.25, -.5, 1, 0, .75, -1.25});
  const auto seen = attention(q, k, v, {.causal = false}, bias);
  const auto found = weft_test::numbers_of(attention_mask_gradient(q, k, v, seen, g, {.causal = false}, bias));
  const std::vector<double> wanted{1.018363210857554,   -0.05705514847806772, -0.9613080623794867,
                                   -0.9959812745532096, 1.017170796874025,    -0.02118952232081578};
  for (std::size_t i = 0; i < 6; ++i) CHECK(found[i] == doctest::Approx(wanted[i]).epsilon(1e-13));
}

TEST_CASE("in a Module's forward, with the gradients of the operation") {
  for (const AttentionMask& pattern :
       {AttentionMask{}, AttentionMask{.causal = false}, AttentionMask{.window = 3}, AttentionMask{false, 2}}) {
    const auto make = [&](const auto&) {
      OwnAttention layer;
      layer.pattern = pattern;
      return layer;
    };
    const testing::CheckReport report = testing::check_layer(make, Shape{4, 6, 3});
    CHECK(report.compared != 0);
    CHECK(report.error < 1e-6);
  }
  const auto masked = [&](const auto&) {
    OwnAttention layer;
    layer.pattern.causal = false;
    layer.with_mask = true;
    return layer;
  };
  CHECK(testing::check_layer(masked, Shape{4, 6, 3}).error < 1e-6);
}

TEST_CASE("every pattern, by finite differences and with heads over ranks") {
  for (const AttentionMask& pattern :
       {AttentionMask{}, AttentionMask{.causal = false}, AttentionMask{.window = 3}, AttentionMask{false, 2}}) {
    const auto make = [&](const auto&) { return SelfAttention<>{pattern, {}}; };
    const Shape shape{4, 6, 3};
    CHECK(testing::check_layer(make, shape).compared != 0);
    CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, shape).compared != 0);
    CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, make, shape).compared != 0);
    CHECK(testing::check_layer_on<dp>(2, make, shape).compared != 0);
  }
}

TEST_CASE("masks of one's own, by finite differences") {
  DefaultDevice device;
  for (const bool causal : {true, false}) {
    const auto keep = tensor<std::uint8_t>(device, {4, 6, 6}, coins(4 * 36, 1));
    CHECK(testing::check_layer(
              [&](const auto&) {
                return SelfAttention<Local<std::uint8_t>>{{causal}, {keep}};
              },
              {4, 6, 3})
              .compared != 0);
    const auto added = tensor<double>(device, {1, 6, 6}, drawn<double>(36, 2));
    CHECK(testing::check_layer(
              [&](const auto&) {
                return SelfAttention<Local<double>>{{causal}, {added}};
              },
              {4, 6, 3})
              .compared != 0);
  }
}

TEST_CASE("an extent of 1 is broadcast over all heads, or all queries") {
  DefaultDevice device;
  const std::size_t heads = 3, tokens = 10, keys = 7, width = 4;
  const auto q = tensor<float>(device, {heads, tokens, width}, drawn<float>(heads * tokens * width, 3));
  const auto k = tensor<float>(device, {heads, keys, width}, drawn<float>(heads * keys * width, 4));
  const auto v = tensor<float>(device, {heads, keys, width}, drawn<float>(heads * keys * width, 5));
  const auto all = coins(heads * tokens * keys, 6);
  for (const bool of_heads : {true, false})
    for (const bool of_queries : {true, false}) {
      const std::size_t h = of_heads ? heads : 1, n = of_queries ? tokens : 1;
      std::vector<std::uint8_t> whole;
      for (std::size_t head = 0; head < heads; ++head)
        for (std::size_t query = 0; query < tokens; ++query)
          for (std::size_t key = 0; key < keys; ++key)
            whole.push_back(all[((of_heads ? head : 0) * n + (of_queries ? query : 0)) * keys + key]);
      const auto small = tensor<std::uint8_t>(device, {h, n, keys}, {all.begin(), all.begin() + std::ptrdiff_t(h * n * keys)});
      const auto large = tensor<std::uint8_t>(device, {heads, tokens, keys}, whole);
      const auto a = attention(q, k, v, {.causal = false}, small), b = attention(q, k, v, {.causal = false}, large);
      CHECK(copy_to_host(a.output) == copy_to_host(b.output));
      CHECK(copy_to_host(a.log_sum_exp) == copy_to_host(b.log_sum_exp));
    }
}

TEST_CASE("a key that is hidden has no influence, and no gradient") {
  DefaultDevice device;
  const Shape shape{1, 5, 2};
  auto numbers = drawn<float>(10, 7);
  const auto keep = tensor<std::uint8_t>(device, {1, 1, 5}, {1, 1, 0, 1, 1});
  const auto q = tensor<float>(device, shape, drawn<float>(10, 8)), k = tensor<float>(device, shape, numbers);
  numbers[4] += 9, numbers[5] -= 7;
  const auto other = tensor<float>(device, shape, numbers);
  const auto a = attention(q, k, k, {.causal = false}, keep), b = attention(q, other, other, {.causal = false}, keep);
  CHECK(copy_to_host(a.output) == copy_to_host(b.output));
  const auto [dq, dk, dv] = attention_gradient(q, k, k, a, q, {.causal = false}, keep);
  for (const std::size_t i : {4, 5}) {
    CHECK(copy_to_host(dk)[i] == 0);
    CHECK(copy_to_host(dv)[i] == 0);
  }
}

TEST_CASE("shapes that do not fit are refused, with the shapes") {
  DefaultDevice device;
  const Local<float> q(device, {2, 5, 4}), k(device, {2, 7, 4}), narrow(device, {2, 7, 3}), matrix(device, {5, 4});
  CHECK(refusal([&] { attention(q, k, narrow); }) ==
        "weft: attention([2, 5, 4], [2, 7, 4], [2, 7, 3]): expected query [heads, tokens, width], key [heads, keys, width] and a "
        "value like the key");
  CHECK(refusal([&] { attention(q, k, k); }) ==
        "weft: attention([2, 5, 4], [2, 7, 4], [2, 7, 4]): 5 queries and 7 keys, but causal and a window go by positions, which "
        "only a sequence beside itself has; "
        "take {.causal = false} and a mask");
  CHECK(refusal([&] {
          attention(q, k, k, {.causal = false}, Local<std::uint8_t>(device, {2, 7, 5}));
        }) ==
        "weft: attention([2, 5, 4], [2, 7, 4], [2, 7, 5]): expected a mask [2 or 1, 5 or 1, 7]: of heads, queries and keys; 1 "
        "where all have the same; "
        "or four dims, of the samples and their heads, whose product is 2, queries and keys");
  CHECK(refusal([&] { attention(matrix, matrix, matrix); }).find("weft: attention") == 0);
}
