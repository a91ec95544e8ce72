// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/broadcast.hpp weft/kernels/expand.hpp
// Broadcasting of + - * /, maximum, minimum, pow, comparisons and `where`: values of many pairs of shapes against plain loops
// over coordinates, derivatives, parameters that are repeated, one rank over dp, tp and cp, and the shapes and placements that
// are refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/kernels/expand.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/broadcast.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/operations/special_functions.hpp>

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

/// Broadcast parameters in choices and powers.
struct Chosen : Module<Chosen> {
  Parameter<> gain, shift;  // [channels, 1] and [1, positions]
  Chosen(const auto& context, std::size_t channels, std::size_t positions)
      : gain(context, "gain", {channels, 1}, normal(1)), shift(context, "shift", {1, positions}, normal(1)) {}
  auto forward(const auto& x) const {
    const auto g = beside(x, gain), s = beside(x, shift);
    return maximum(x, g) * where(x > s, x, s) + pow(g * g + 0.5, x) - where(x < g, minimum(s, x), g);
  }
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
    check(maximum(x, y), [](double a, double b) { return a > b ? a : b; });
    check(minimum(x, y), [](double a, double b) { return a < b ? a : b; });
    check(pow(abs(x), y), [&](double a, double b) { return std::pow(std::abs(a), b); });
    check(x < y, [](double a, double b) { return double(a < b); });
    check(x <= y, [](double a, double b) { return double(a <= b); });
    check(x > y, [](double a, double b) { return double(a > b); });
    check(x >= y, [](double a, double b) { return double(a >= b); });
    check(x == y, [](double a, double b) { return double(a == b); });
    check(x != y, [](double a, double b) { return double(a != b); });
  }
  const auto low = tensor_of<bfloat16>(device, {2, 2}, {1, 2, 3, 4}), row = tensor_of<bfloat16>(device, {2}, {8, 16});
  CHECK(numbers_of(low * row) == Numbers{8, 32, 24, 64});
}

TEST_CASE("where repeats each of its operands") {
  DefaultDevice device;
  const Shape shapes[] = {{2, 3, 4}, {3, 1}, {4}, {2, 1, 4}, {1}};
  for (const Shape& c : shapes)
    for (const Shape& a : shapes)
      for (const Shape& b : shapes) {
        const auto condition = tensor_of<double>(device, c, weft_test::waves(c.size(), 2)) > 0;
        const auto x = tensor_of<double>(device, a, weft_test::waves(a.size())),
                   y = tensor_of<double>(device, b, weft_test::waves(b.size(), 1));
        const auto z = where(condition, x, y);
        // The choice of each element of the result by the plain loop, first beside x, then beside y.
        const auto whole = [&](const Shape& shape, const Numbers& numbers) {
          return looped([](double, double value) { return value; }, z.shape(), z.shape(), Numbers(z.size()), shape, numbers);
        };
        const Numbers mask = whole(c, numbers_of(condition)), left = whole(a, numbers_of(x)), right = whole(b, numbers_of(y));
        Numbers wanted(z.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = mask[i] != 0 ? left[i] : right[i];
        CAPTURE(c.text());
        CAPTURE(a.text());
        CAPTURE(b.text());
        std::size_t largest = 0;
        for (const Shape& shape : {c, a, b}) largest = std::max(largest, shape.rank());
        CHECK(z.shape().rank() == largest);
        CHECK(numbers_of(z) == wanted);
      }
  const Tensor<std::uint8_t, Exec> column = tensor_of<double>(device, {2, 1}, {1, -1}) > 0;
  CHECK(numbers_of(where(column, tensor_of<double>(device, {2, 2}, {1, 2, 3, 4}), 9.0)) == Numbers{1, 2, 9, 9});
  CHECK(numbers_of(where(column, -1.0, tensor_of<double>(device, {2}, {1, 2}))) == Numbers{-1, -1, 1, 2});
}

TEST_CASE("powers of two values at the ends of the range") {
  DefaultDevice device;
  // PyTorch's gradients of pow(x, y) for g = 1.
  const auto x = tensor_of<double>(device, {6}, {0, 0, 0, 2, -2, 4}), y = tensor_of<double>(device, {6}, {0, 2, 1, 0, 3, -0.5});
  const auto g = tensor_of<double>(device, {6}, Numbers(6, 1));
  CHECK(numbers_of(pow(x, y)) == Numbers{1, 0, 0, 1, -8, 0.5});
  CHECK(numbers_of(pow_gradient(x, y, g)) == Numbers{0, 0, 1, 0, 12, -0.0625});
  const auto by_y = numbers_of(exponent_gradient(x, y, g));
  CHECK(Numbers(by_y.begin(), by_y.begin() + 3) == Numbers{0, 0, 0});
  CHECK(by_y[3] == std::log(2.0));
  CHECK(std::isnan(by_y[4]));
  CHECK(by_y[5] == 0.5 * std::log(4.0));
  CHECK(numbers_of(pow(2.0, y)) == Numbers{1, 4, 2, 1, 8, std::sqrt(0.5)});
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

TEST_CASE("derivatives of broadcast choices and powers, on one rank and over dp") {
  const auto everywhere = [](auto f) {
    check_formula(f, {4, 6});
    check_over<Shard<dp, 0>>(f, {4, 6});
  };
  everywhere([](const auto& x) { return maximum(x * x, reshape(sum<1>(x * 0.3), {x.shape()[0], 1})) * x; });
  everywhere([](const auto& x) { return minimum(slice<1>(x, 2, 1), x) + maximum(slice<1>(x, 1, 1), sin(x)) * x; });
  everywhere([](const auto& x) { return pow(1.5 + x, slice<1>(x, 0, 1)) - pow(slice<1>(x * x, 3, 1) + 0.5, x); });
  everywhere([](const auto& x) { return where(slice<1>(x, 0, 1) > x, x * x, slice<1>(exp(x), 3, 1)) + pow(2.0, x); });
  everywhere([](const auto& x) {
    const auto column = slice<1>(x, 1, 1);
    return where(column < 0.1, x * x, column) - where(x <= column, column * 2, slice<1>(sin(x), 4, 1)) +
           where(x > 0.2, column, 2.0);
  });
  check_formula([](const auto& x) { return maximum(reshape(x, {4, 1, 6}), reshape(sin(x), {1, 4, 6})); }, {4, 6});
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

TEST_CASE("choices and powers of columns that tp cuts") {
  check_cut<1>(
      [](const auto& x) {
        const auto row = to<Replicated<dp>>(to<Invariant<dp>>(sum<0>(x)));
        return maximum(x, row) * x + pow(2 + x, row) + where(row > x, x * x, row);
      },
      {4, 6});
  check_cut<1>(
      [](const auto& x) {
        const auto total = reshape(to<Replicated<tp>>(to<Invariant<tp>>(sum<1>(x))), {4, 1});
        return minimum(total, x) * x + where(total > 0.3, x * x, total) - where(x > total, total, total * 0.5) +
               pow(total * total + 1, x);
      },
      {4, 6});
}

TEST_CASE("parameters are repeated in every layout") {
  const auto make = [](const auto& context) { return Scaled(context, 6, 5); };
  CHECK(testing::check_layer(make, {4, 6, 5}).compared != 0);
  testing::check_layer_on<dp>(2, make, {4, 6, 5});
  testing::check_layer_on<tp>(2, make, {4, 6, 5});
  testing::check_layer_on<cp>(2, make, {8, 6, 5}, {.length = 4});
  const auto choices = [](const auto& context) { return Chosen(context, 6, 5); };
  CHECK(testing::check_layer(choices, {4, 6, 5}).compared != 0);
  testing::check_layer_on<dp>(2, choices, {4, 6, 5});
  testing::check_layer_on<tp>(2, choices, {4, 6, 5});
  testing::check_layer_on<cp>(2, choices, {8, 6, 5}, {.length = 4});
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
  using M = with_scalar_t<S1, std::uint8_t>;
  static_assert(std::is_same_v<decltype(maximum(std::declval<R>(), std::declval<S1>())), S1>);
  static_assert(std::is_same_v<decltype(pow(std::declval<S1>(), std::declval<R>())), S1>);
  static_assert(std::is_same_v<decltype(std::declval<R>() < std::declval<S1>()), M>);
  static_assert(std::is_same_v<decltype(where(std::declval<M>(), std::declval<R>(), std::declval<R>())), S1>);
  static_assert(std::is_same_v<decltype(where(std::declval<with_scalar_t<R, int>>(), std::declval<P>(), std::declval<P>())), P>);
  static_assert(!detail::Pairs<P, P>::fits && !detail::Pairs<P, R>::fits && !detail::Pairs<X<Invariant<tp>>, S1>::fits);
  // A gradient of a whole operand would lose a sum.
  static_assert(!detail::WhereRule<M, X<Invariant<tp>>, X<Invariant<tp>>>::fits && !detail::WhereRule<M, P, P>::fits);
  static_assert(!detail::WhereRule<P, R, R>::fits && !detail::WhereRule<M, R, P>::fits);
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
  CHECK(refusal([&] { maximum(X<>(device, {4, 6}), X<>(device, {4})); }) == "weft: maximum([4, 6], [4]): the shapes differ");
  CHECK(refusal([&] { (void)(X<>(device, {4, 6}) < X<>(device, {4})); }) == "weft: less([4, 6], [4]): the shapes differ");
  CHECK(refusal([&] {
          where(X<>(device, {5}), X<>(device, {4, 6}), X<>(device, {6}));
        }) == "weft: where([4, 6], [5]): the shapes differ");
  CHECK(refusal([&] {
          where(X<Shard<dp, 0>>(device, {6}), X<Replicated<dp>>(device, {6}), X<Replicated<dp>>(device, {6}));
        }).find("the other one is whole") != std::string::npos);
  // The gradient of a result has its shape.
  for (const std::size_t size : {2, 6}) {
    const X<> x(device, {4}), g(device, {size});
    const Tensor<std::uint8_t, DefaultDevice::execution_space> mask(device, {4});
    CHECK(refusal([&] { maximum_gradient(x, x, g); }).starts_with("weft: maximum_gradient("));
    CHECK(refusal([&] { pow_gradient(x, x, g); }).starts_with("weft: pow_gradient("));
    CHECK(refusal([&] { exponent_gradient(x, x, g); }).starts_with("weft: exponent_gradient("));
    CHECK(refusal([&] { where_gradient(mask, g, true); }).starts_with("weft: where_gradient([4]): "));
  }
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
