// SPDX-License-Identifier: Apache-2.0
// covers: weft/layer/operations/attention.hpp
// Attention as an operation: against finite differences and over ranks under every mask, a mask's broadcasting against the same
// mask written out, queries of another sequence than the keys, and what it refuses.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <weft/layer/operations/attention.hpp>
#include <weft/layer/operations/elementwise.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

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

/// The same in a Module, whose backward follows. Keys are hidden where the sum of the first head's numbers is not positive.
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

}  // namespace

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

TEST_CASE("an extent of 1 stands for all heads, or all queries") {
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
        "weft: attention of query [2, 5, 4], key [2, 7, 4] and value [2, 7, 3], expected [heads, tokens, width], [heads, keys, "
        "width] and the same");
  CHECK(refusal([&] { attention(q, k, k); }) ==
        "weft: attention of 5 queries and 7 keys: causal and a window go by positions, which only a sequence beside itself has; "
        "take {.causal = false} and a mask");
  CHECK(refusal([&] {
          attention(q, k, k, {.causal = false}, Local<std::uint8_t>(device, {2, 7, 5}));
        }) ==
        "weft: attention's mask [2, 7, 5], expected [2 or 1, 5 or 1, 7]: of heads, queries and keys; 1 where all have the same");
  CHECK(refusal([&] { attention(matrix, matrix, matrix); }).find("weft: attention") == 0);
  const kernels::AttentionExtents extents{.length = 5, .head_width = 4, .keys = 7};
  CHECK(
      refusal([&] {
        kernels::attention_forward<float>(device, extents, {.q = q.data(), .k = k.data(), .v = k.data()}, {q.data(), 4}, nullptr);
      }) == "weft: attention: 5 queries and 7 keys: causal, a window and documents are for as many keys as queries");
}
