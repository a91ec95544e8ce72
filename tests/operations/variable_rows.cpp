// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/variable_rows.hpp
// The gradients of operations over rows, columns and heads of Variables against differences of their values, on one rank and on
// two.

#include <cstddef>

#include <doctest/doctest.h>

#include <weft/autograd/module.hpp>
#include <weft/operations/variable_rows.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/formula.hpp"

using namespace weft;

namespace {

/// Each row over the root of its mean square, times the sum of its cubes.
struct Normed : Module<Normed> {
  auto forward(const auto& x) const {
    auto normed = divide_column(x, sqrt(mean_columns(square(x)) + 0.5));
    return times_column(normed, sum_columns(square(x) * x));
  }
};
/// Each row times the logarithm of its sum of exponentials.
struct LogSum : Module<LogSum> {
  auto forward(const auto& x) const { return times_column(x, log_sum_exp(x)); }
};
/// Each row times the logarithm of the sum of exponentials of its twelve scores, which tp cuts.
struct LogSumOfScores : Module<LogSumOfScores> {
  Parameter<Shard<tp, 0>> weight;
  explicit LogSumOfScores(const auto& context) : weight(context, "weight", {12, 8}, normal(0.5)) {}
  auto forward(const auto& x) const { return times_column(x, log_sum_exp(matmul(to<Replicated<tp>>(x), weight), 12)); }
};
/// Everything times the sum of all squares.
struct Total : Module<Total> {
  auto forward(const auto& x) const { return times_scalar(x, sum_all(square(x))); }
};
/// A gain for all heads, and each head times its mean and the square of its sum.
struct Heads : Module<Heads> {
  Parameter<> gain;
  explicit Heads(const auto& context) : gain(context, "gain", {4}, normal(1)) {}
  auto forward(const auto& x) const {
    auto heads = times_heads(split_heads(x, 4), gain);
    return merge_heads(times_each_head(heads, mean_each_head(square(heads)) * square(sum_each_head(heads))));
  }
};
struct Cube {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return x * x * x;
  }
};
struct CubeDerivative {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return 3 * x * x;
  }
};
struct Cubes : Module<Cubes> {
  auto forward(const auto& x) const { return map(x, Cube(), CubeDerivative()); }
};

}  // namespace

TEST_CASE("rows times and divided by sums and means over their columns") {
  const auto make = [](const auto&) { return Normed(); };
  CHECK(testing::check_layer(make, {6, 8}).compared > 20);
  CHECK(testing::check_layer_on<tp>(2, make, {6, 8}).compared > 40);
}

TEST_CASE("numbers of rows of any number of dims, and sums of terms of a sum") {
  weft_test::check_rows([](const auto& x) { return times_column(x, sum<1>(reshape(exp(x), {x.shape()[0], 15}))); }, {4, 3, 5});
  weft_test::check_rows(
      [](const auto& x) {
        return divide_column(x * x, sum<1>(reshape(exp(x), {x.shape()[0], 15})));
      },
      {4, 3, 5});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto terms = to<Partial<tp>>(x * x);
        const auto sums = to<Invariant<tp>>(sum_columns(terms) + mean_columns(terms));
        return times_column(x, sums) * to<Invariant<tp>>(to<Partial<tp>>(x));
      },
      {4, 6});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) { return exp(to<Invariant<dp>>(to<Invariant<tp>>(sum_rows(to<Partial<tp>>(x))))); }, {4, 6});
}

TEST_CASE("rows times the logarithm of their sum of exponentials, of whole rows and of columns that tp cuts") {
  const auto make = [](const auto&) { return LogSum(); };
  CHECK(testing::check_layer(make, {6, 8}).compared > 20);
  CHECK(testing::check_layer_on<tp>(2, make, {6, 8}).compared > 40);
  const auto make_scores = [](const auto& context) { return LogSumOfScores(context); };
  CHECK(testing::check_layer(make_scores, {6, 8}).compared > 40);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make_scores, {6, 8}).compared > 100);
}

TEST_CASE("heads times one gain for all, and each times numbers of its own") {
  const auto make = [](const auto& context) { return Heads(context); };
  CHECK(testing::check_layer(make, {6, 8}).compared > 20);
  CHECK(testing::check_layer_on<tp>(2, make, {6, 8}).compared > 40);
}

TEST_CASE("a function with a derivative of one's own, and everything times the sum of all elements") {
  CHECK(testing::check_layer([](const auto&) { return Cubes(); }, {6, 8}).compared > 20);
  CHECK(testing::check_layer([](const auto&) { return Total(); }, {6, 8}).compared > 20);
}
