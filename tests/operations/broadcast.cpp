// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/broadcast.hpp weft/kernels/expand.hpp
// Broadcasting of + - * /: values of many pairs of shapes against plain loops over coordinates, derivatives, parameters that are
// repeated, one rank over dp, tp and cp, and the shapes and placements that are refused.

#include <doctest/doctest.h>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/kernels/expand.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/broadcast.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/shapes.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_formula;
using weft_test::check_over;
using weft_test::Exec;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

using Numbers = std::vector<double>;
template <class... P>
using X = Tensor<double, Exec, P...>;

// The place in an operand of the element with these coordinates of the result.
std::size_t place_in(const Shape& operand, const Shape& result, const std::vector<std::size_t>& coordinates) {
  std::size_t at = 0;
  for (std::size_t dim = 0; dim < operand.rank(); ++dim) {
    const std::size_t coordinate = coordinates[result.rank() - operand.rank() + dim];
    at = at * operand[dim] + (operand[dim] == 1 ? 0 : coordinate);
  }
  return at;
}
// f of each pair of elements, the coordinates counted up one by one.
template <class F>
Numbers looped(F f, const Shape& result, const Shape& a, const Numbers& x, const Shape& b, const Numbers& y) {
  Numbers out;
  std::vector<std::size_t> at(result.rank(), 0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    out.push_back(f(x[place_in(a, result, at)], y[place_in(b, result, at)]));
    for (std::size_t dim = result.rank(); dim-- > 0;) {
      if (++at[dim] < result[dim]) break;
      at[dim] = 0;
    }
  }
  return out;
}

struct Pair {
  Shape x, y, result;
};
const std::vector<Pair> pairs = {
    {{2, 3}, {3}, {2, 3}},
    {{3}, {2, 3}, {2, 3}},
    {{2, 3}, {2, 1}, {2, 3}},
    {{2, 1}, {1, 3}, {2, 3}},
    {{2, 3}, {1}, {2, 3}},
    {{1}, {5}, {5}},
    {{1, 1}, {1}, {1, 1}},
    {{2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
    {{2, 1, 4, 1}, {3, 1, 5}, {2, 3, 4, 5}},
    {{2, 1, 3, 1, 2, 1}, {1, 2, 1, 3, 1, 40}, {2, 2, 3, 3, 2, 40}},
    {{1, 3, 1}, {4, 3, 5}, {4, 3, 5}},
    {{3, 5000}, {3, 1}, {3, 5000}},
    {{2, 3, 9, 9}, {3, 1, 1}, {2, 3, 9, 9}},
    {{2, 2, 3, 2, 70}, {2, 1, 2, 1}, {2, 2, 3, 2, 70}},
    {{0, 3}, {1, 3}, {0, 3}},
    {{4, 0}, {4, 1}, {4, 0}},
};

/// Broadcast statistics and parameters.
struct Scaled : Module<Scaled> {
  Parameter<> gain, shift;  // [channels, 1] and [1, positions]
  Scaled(const auto& context, std::size_t channels, std::size_t positions)
      : gain(context, "gain", {channels, 1}, normal(1)), shift(context, "shift", {1, positions}, normal(1)) {}
  auto forward(const auto& x) const {
    auto scale = exp(beside(x, gain));
    return (x * scale - beside(x, shift)) / (scale + 1) + scale * x;
  }
};

}  // namespace

TEST_CASE("broadcast values against plain loops") {
  DefaultDevice device;
  for (const Pair& pair : pairs) {
    const auto x = tensor_of<double>(device, pair.x, weft_test::waves(pair.x.size())),
               y = tensor_of<double>(device, pair.y, weft_test::waves(pair.y.size(), 1));
    const auto check = [&](const auto& z, auto f) {
      CHECK(z.shape() == pair.result);
      CHECK(numbers_of(z) == looped(f, pair.result, pair.x, numbers_of(x), pair.y, numbers_of(y)));
    };
    CAPTURE(pair.x.text());
    CAPTURE(pair.y.text());
    check(x + y, [](double a, double b) { return a + b; });
    check(x - y, [](double a, double b) { return a - b; });
    check(x * y, [](double a, double b) { return a * b; });
    check(x / y, [](double a, double b) { return a / b; });
  }
  const auto low = tensor_of<bfloat16>(device, {2, 2}, {1, 2, 3, 4}), row = tensor_of<bfloat16>(device, {2}, {8, 16});
  CHECK(numbers_of(low * row) == Numbers{8, 32, 24, 64});
}

TEST_CASE("sums over repeated dims against plain loops") {
  DefaultDevice device;
  for (const Pair& pair : pairs) {
    const auto g = weft_test::waves(pair.result.size());
    for (const Shape& operand : {pair.x, pair.y}) {
      Numbers wanted(operand.size(), 0);
      const auto add = [&](double value, double& to) { return to += value; };
      std::vector<double> places(operand.size());
      for (std::size_t i = 0; i < places.size(); ++i) places[i] = double(i);
      const auto at = looped([](double, double place) { return place; }, pair.result, pair.result, g, operand, places);
      for (std::size_t i = 0; i < g.size(); ++i) add(g[i], wanted[std::size_t(at[i])]);
      CAPTURE(pair.result.text());
      CAPTURE(operand.text());
      const auto sums = detail::sum_repeated<X<>>(operand, tensor_of<double>(device, pair.result, g));
      CHECK(sums.shape() == operand);
      CHECK(weft_test::difference(numbers_of(sums), wanted) < 1e-12);
    }
  }
  // Terms of bfloat16 are added in float.
  const auto ones = tensor_of<bfloat16>(device, {600, 2}, Numbers(1200, 1));
  CHECK(numbers_of(detail::sum_repeated<Tensor<bfloat16, Exec>>({2}, ones)) == Numbers{600, 600});
  CHECK(numbers_of(detail::sum_repeated<Tensor<bfloat16, Exec>>({1, 1}, ones)) == Numbers{1200});
}

TEST_CASE("derivatives of broadcast formulas, on one rank and over dp") {
  check_formula([](const auto& x) { return reshape(x, {4, 1, 6}) * exp(reshape(x, {1, 4, 6})); }, {4, 6});
  check_formula([](const auto& x) { return sum<0>(x) / (2 + x * x) - x * reshape(sum<1>(x), {4, 1}); }, {4, 6});
  check_formula([](const auto& x) { return (x + sum(x)) / (3 + sum(x * x)) + slice<0>(x, 1, 1); }, {4, 6});
  check_formula([](const auto& x) { return reshape(x, {2, 1, 2, 3}) - slice<1>(reshape(x, {2, 2, 3}), 0, 1) * 2; }, {4, 3});
  const auto rows = [](const auto& x) {
    const auto total = reshape(sum<1>(x), {x.shape()[0], 1});
    return x / (4 + total * total) - total * x + (total - x);
  };
  check_formula(rows, {4, 6});
  check_over<Shard<dp, 0>>(rows, {4, 6});
}

TEST_CASE("broadcast formulas of columns that tp cuts") {
  // A row beside cut columns, and a column that is Replicated beside them.
  check_cut<1>(
      [](const auto& x) {
        const auto row = to<Replicated<dp>>(to<Invariant<dp>>(sum<0>(x)));
        return x * row - row / (2 + x * x);
      },
      {4, 6});
  check_cut<1>(
      [](const auto& x) {
        const auto total = reshape(to<Replicated<tp>>(to<Invariant<tp>>(sum<1>(x))), {4, 1});
        return x * total + total / (3 + x * x) - (total - x) * x / (2 + total * total);
      },
      {4, 6});
}

TEST_CASE("parameters are repeated in every layout") {
  const auto make = [](const auto& context) { return Scaled(context, 6, 5); };
  CHECK(testing::check_layer(make, {4, 6, 5}).compared != 0);
  testing::check_layer_on<dp>(2, make, {4, 6, 5});
  testing::check_layer_on<tp>(2, make, {4, 6, 5});
  testing::check_layer_on<cp>(2, make, {8, 6, 5}, {.length = 4});
}

TEST_CASE("placements of broadcast results") {
  using R = X<Replicated<tp>>;
  using P = X<Partial<tp>>;
  using S0 = X<Shard<tp, 0>>;
  using S1 = X<Shard<tp, 1>>;
  static_assert(std::is_same_v<decltype(std::declval<S1>() + std::declval<S0>()), S1>);
  static_assert(std::is_same_v<decltype(std::declval<S0>() * std::declval<S1>()), S1>);
  static_assert(std::is_same_v<decltype(std::declval<R>() - std::declval<S0>()), S0>);
  static_assert(std::is_same_v<decltype(std::declval<P>() + std::declval<P>()), P>);
  static_assert(std::is_same_v<decltype(std::declval<R>() * std::declval<P>()), P>);
  static_assert(std::is_same_v<decltype(std::declval<P>() / std::declval<R>()), P>);
  // Each operand is cut over another axis.
  static_assert(
      std::is_same_v<decltype(std::declval<X<Shard<dp, 0>, Replicated<tp>>>() * std::declval<X<Replicated<dp>, Shard<tp, 1>>>()),
                     X<Shard<dp, 0>, Shard<tp, 1>>>);
}

TEST_CASE("shapes that are not broadcast") {
  DefaultDevice device;
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { X<>(device, {4, 6}) * X<>(device, {4}); }) == "weft: times([4, 6], [4]): the shapes differ");
  CHECK(refusal([&] { X<>(device, {4, 6}) + X<>(device, {4, 5}); }) == "weft: add([4, 6], [4, 5]): the shapes differ");
  // A dim that an axis cuts is neither repeated nor taken for another one.
  CHECK(refusal([&] {
          X<Shard<dp, 0>>(device, {1, 6}) - X<Shard<dp, 0>>(device, {4, 6});
        }) ==
        "weft: subtract([1, 6], [4, 6]): dp cuts dim 0 of the first operand and dim 0 of the second, which are not the same dim "
        "with as many elements: aligned at their last dims, a dim that an axis cuts is not repeated");
  CHECK(refusal([&] {
          X<Shard<dp, 0>>(device, {4, 4}) * X<Shard<dp, 0>>(device, {4});
        }).find("not the same dim") != std::string::npos);
  CHECK(refusal([&] {
          X<Shard<tp, 1>>(device, {4, 6}) * X<Shard<tp, 0>>(device, {4, 6});
        }).find("not the same dim") != std::string::npos);
  CHECK(refusal([&] {
          X<Shard<tp, 1>>(device, {4, 6}) * X<Replicated<tp>>(device, {4, 6});
        }) ==
        "weft: times([4, 6], [4, 6]): tp cuts dim 1 of the first operand, and the other one is whole: it has one element there, "
        "or no such dim, or is cut alike, to<Shard<axis, dim>>(y)");
  CHECK(refusal([&] {
          X<Shard<tp, 1>>(device, {4, 1}) * X<Replicated<tp>>(device, {4, 2});
        }).find("the other one is whole") != std::string::npos);
  CHECK(refusal([&] {
          X<Replicated<tp>>(device, {4, 6}) / X<Shard<tp, 0>>(device, {6});
        }).find("the other one is whole") != std::string::npos);
  CHECK(refusal([&] {
          X<Replicated<tp>>(device, {1, 4, 1}) / X<Shard<tp, 0>>(device, {6});
        }).find("the other one is whole") != std::string::npos);
}
