// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/grad.hpp weft/autograd/nested_variable.hpp weft/operations/differentiable_functions.hpp
// covers: weft/operations/differentiable_parts.hpp weft/operations/differentiable_products.hpp
// covers: weft/operations/differentiable_sums.hpp
// Derivatives inside of a forward: their values, their own derivatives by finite differences, and equality on two ranks.

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/differentiable_functions.hpp>
#include <weft/operations/differentiable_parts.hpp>
#include <weft/operations/differentiable_products.hpp>
#include <weft/operations/differentiable_sums.hpp>
#include <weft/operations/grad.hpp>

#include "support/derivative.hpp"
#include "support/formula.hpp"

using namespace weft;
using weft_test::check_derivative;
using weft_test::check_everywhere;
using weft_test::check_formula;
using weft_test::check_rows;

namespace {

/// u(x) of a tanh network, its slopes and its second derivative by the first coordinate, as a physics-informed loss has them.
struct Burgers : Module<Burgers> {
  Parameter<Shard<tp, 0>> in, bias;
  Parameter<Shard<tp, 1>> out;
  Burgers(const auto& context, std::size_t hidden)
      : in(context, "in", {hidden, 2}, normal(0.9)),
        bias(context, "bias", {hidden}, normal(0.5)),
        out(context, "out", {1, hidden}, normal(0.7)) {}
  auto u(const auto& x) const {
    return to<Invariant<tp>>(matmul(tanh(matmul(to<Replicated<tp>>(x), in) + bias), out));  // [samples, 1]
  }
  auto forward(const auto& x) const {
    const auto slope = [&](const auto& p) { return grad([&](const auto& q) { return u(q); }, p); };
    const auto slopes = slope(x);                                                          // [samples, 2]
    const auto second = grad([&](const auto& p) { return slice<1>(slope(p), 0, 1); }, x);  // [samples, 2]
    return slice<1>(slopes, 1, 1) + u(x) * slice<1>(slopes, 0, 1) -
           0.3 * slice<1>(second, 0, 1);  // Burgers: u_t + u u_x - ν u_xx
  }
};

}  // namespace

TEST_CASE("derivatives of functions, and derivatives of these") {
  check_derivative([](const auto& p) { return exp(p * 0.5) * sin(p) + log(square(p) + 2.0) * cos(p); }, {3, 2});
  check_derivative([](const auto& p) { return sqrt(square(p) + 1.0) / (2.0 + sigmoid(p)) - softplus(p); }, {3, 2});
  check_derivative([](const auto& p) { return silu(p) * gelu(p) - gelu_erf(p * 2.0) + erf(p); }, {3, 2});
  check_derivative([](const auto& p) { return pow(p, 3) + 1.0 / (pow(square(p) + 1.0, 1.5)) - pow(p, 0); }, {3, 2});
  check_derivative([](const auto& p) { return (3.0 - p) * p / 2.0 - -p * p + p * 0.3 + tanh(p); }, {3, 2});
  check_derivative([](const auto& p) { return relu(p) * p * p + abs(p) * square(p); }, {3, 2});
}
TEST_CASE("derivatives of sums and parts, on one rank and on two") {
  check_everywhere([](const auto& p) { return square(sum<1>(p * square(p))); }, {4, 3});
  check_everywhere([](const auto& p) { return times_column(p * p, mean<1>(square(p))); }, {4, 3});
  check_everywhere([](const auto& p) { return sqrt(sum_columns(square(p)) + 1.0) + square(mean_columns(p)); }, {4, 3});
  check_derivative([](const auto& p) { return times_scalar(square(p), square(sum_all(p * p * p)) + square(mean(p))); }, {2, 3});
  check_everywhere([](const auto& p) { return softmax<1>(p * 2.0) * p + divide_column(p, sum<1>(square(p)) + 1.0); }, {4, 3});
  check_derivative([](const auto& p) { return times_row(square(p), square(sum_rows(square(p)))); }, {2, 3});
  check_everywhere(
      [](const auto& p) {
        const auto both = concat<1>(slice<1>(p, 1, 2), square(p));
        return square(flatten<0, 1>(unflatten<0>(both, 1))) * both;
      },
      {4, 3});
  check_derivative([](const auto& p) { return matmul(square(transpose<0, 1>(p)), permute<1, 0>(p * square(p))); }, {3, 4});
  check_everywhere([](const auto& p) { return square(reshape(p * p, {p.shape().size()})); }, {4, 3});
}
TEST_CASE("values of the forward around are constants to a derivative, and not to backward") {
  check_rows(
      [](const auto& x) {
        const auto outside = exp(x);
        return grad(
            [&](const auto& p) {
              return square(p) * outside + outside / (p + 3.0) - slice<1>(concat<1>(p, x, outside * p), 2, 3) * p;
            },
            x);
      },
      {4, 3});
  // Zero, of a function whose result does not depend on its argument.
  check_formula([](const auto& x) { return x + grad([](const auto& p) { return square(p.detach()); }, x); }, {4, 3});
}
TEST_CASE("second derivatives of rows by ids") {
  check_formula(
      [](const auto& x) {
        using Ids = Tensor<std::int32_t, weft_test::Exec>;
        Ids ids(x.value().device(), {5});
        const std::int32_t rows[] = {2, 0, 1, 2, 2};
        copy_from_host(ids, std::span<const std::int32_t>(rows));
        const auto chosen = weft_test::constant_beside(x, ids);
        return grad(
            [&](const auto& p) {
              const auto pairs = index_select(p, chosen);                          // [5, 2]
              return square(scatter_add(square(pairs) * pairs, chosen, 4)) * 0.5;  // [4, 2]
            },
            x);
      },
      {3, 2});
}

TEST_CASE("derivatives in float") {
  DefaultDevice device;
  const Context<Compute<weft_test::Exec, float>> context(device, {});
  const auto x = weft_test::tensor_of<float>(device, {2, 3}, weft_test::waves(6));
  weft_test::Formula layer([](const auto& v) { return grad([](const auto& p) { return sum<1>(p * square(p)); }, v); });
  auto step = weft::forward(layer, context, x);
  const auto one = weft_test::tensor_of<float>(device, {2, 3}, std::vector<double>(6, 1));
  const auto second = weft::backward(layer, context, std::move(step.saved), one);
  std::vector<double> slopes, curvatures;
  for (const double value : weft_test::numbers_of(x)) slopes.push_back(3 * value * value), curvatures.push_back(6 * value);
  CHECK(weft_test::difference(weft_test::numbers_of(step.output), slopes) < 1e-6);
  CHECK(weft_test::difference(weft_test::numbers_of(second), curvatures) < 1e-6);
}
TEST_CASE("a value of another derivative is refused") {
  DefaultDevice device;
  const weft_test::Alone::context context(device, {});
  const auto x = weft_test::tensor_of<double>(device, {2, 2}, weft_test::waves(4));
  const auto message = [&](auto f) {
    return weft_test::refusal_of<UsageError>([&] { weft::forward(weft_test::Formula(f), context, x); });
  };
  CHECK(message([](const auto& v) {
          return grad([&](const auto& p) { return p * grad([&](const auto& q) { return q * p; }, v); }, v);
        }).find("grad: its function uses a value inside of another grad that is not around it") != std::string::npos);
  CHECK(message([](const auto& v) {
          return grad([](const auto& p) { return p * grad([&](const auto& q) { return q * q * p; }, p); }, v);
        }) == "");
}

namespace {

/// An operation with a gradient of its own and a formula, between weft's layers.
struct Cube : Primitive<Cube> {
  auto forward(const auto& x) const { return times(times(x, x), x); }
  auto gradient(const auto& g, const auto& x) const { return scale(times(g, square(x)), 3); }
  auto formula(const auto& x) const { return x * x * x; }
};
struct Layers : Module<Layers> {
  Sequential<Linear<Column>, Gelu, Linear<Row, StoredAs::in_out>> layers;
  Linear<Whole, StoredAs::out_in, false> last;
  explicit Layers(const auto& context)
      : layers(Linear<Column>(context / "in", 3, 4), Gelu(), Linear<Row, StoredAs::in_out>(context / "out", 4, 3)),
        last(context / "last", 3, 2) {}
  auto u(const auto& x) const { return last(Cube()(to<Invariant<tp>>(layers(x)))); }
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return u(p); }, x);
  }
};

}  // namespace

TEST_CASE("layers with a formula, on one rank and on two") {
  const auto make = [](const auto& context) { return Layers(context / "layer"); };
  CHECK(testing::check_layer(make, {4, 3}).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {4, 3}).compared != 0);
}
TEST_CASE("the residual of a differential equation, on one rank and on two") {
  const auto make = [](const auto& context) { return Burgers(context / "layer", 6); };
  CHECK(testing::check_layer(make, {4, 2}).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {4, 2}).compared != 0);
  CHECK(testing::check_layer_on<dp>(2, make, {4, 2}).compared != 0);
}
