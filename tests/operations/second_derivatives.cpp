// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/differentiable_choices.hpp weft/operations/differentiable_convolution.hpp
// Derivatives inside of a forward of broadcast operands, choices, convolutions, batched products, norms and segments: values,
// their own derivatives by finite differences, and equality on two ranks.

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/nn/convolution.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/differentiable_choices.hpp>
#include <weft/operations/differentiable_convolution.hpp>
#include <weft/operations/grad.hpp>

#include "support/derivative.hpp"
#include "support/formula.hpp"

using namespace weft;
using weft_test::check_derivative;
using weft_test::check_everywhere;
using weft_test::check_formula;

TEST_CASE("derivatives of operands that are repeated, on one rank and on two") {
  check_derivative(
      [](const auto& p) {
        const auto apart = reshape(p, {4, 1, 3}) - reshape(p * p, {4, 3});  // [4, 4, 3]: all pairs, both repeated
        return sqrt(square(apart) + 1.0) / (reshape(p, {1, 4, 3}) + 3.0) * apart;
      },
      {4, 3});
  check_everywhere([](const auto& p) { return square(p) * slice<1>(p, 0, 1) - p / (square(slice<1>(p, 2, 1)) + 1.0); }, {4, 3});
  check_everywhere([](const auto& p) { return square(p - unflatten<0>(mean<1>(p), 1)) * p; }, {4, 3});
  // Columns that tp cuts, beside a value that is whole: its gradient is a sum over tp.
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        return grad(
            [](const auto& p) {
              const auto whole = to<Replicated<tp>>(p);
              return to<Invariant<tp>>(sum<1>(to<Shard<tp, 1>>(square(p)) * square(slice<1>(whole, 0, 1))));
            },
            x);
      },
      {4, 2});
}

namespace {
struct SlopeOfPower : Module<SlopeOfPower> {
  explicit SlopeOfPower(const auto&) {}
  auto forward(const auto& x) const {
    return grad([](const auto& p) { return pow(p, p * 0.0 + 3.0) + pow(0.0, p + 1.0); }, x);
  }
};
}  // namespace

TEST_CASE("the second derivative of a power is a number where its base is 0") {
  DefaultDevice device;
  const weft_test::Alone::context context(device, {});
  SlopeOfPower slope(context);
  const auto x = weft_test::tensor_of<double>(device, {3}, {0, 1, 2}),
             ones = weft_test::tensor_of<double>(device, {3}, {1, 1, 1});
  auto forward = weft::forward(slope, context, x);
  CHECK(weft_test::numbers_of(forward.output) == std::vector<double>{0, 3, 12});
  CHECK(weft_test::numbers_of(weft::backward(slope, context, std::move(forward.saved), ones)) == std::vector<double>{0, 6, 12});
}

TEST_CASE("derivatives by several arguments, on one rank and on two") {
  // Each equals the derivative with the others as constants, also to backward.
  const auto difference = [](const auto& x) {
    const auto y = x * x + 1.0, z = slice<1>(exp(x), 0, 1);
    const auto f = [](const auto& p, const auto& q, const auto& r) { return square(p) * q * r + exp(q * 0.3) * p; };
    const auto all = grad(f, x, y, z);
    const auto alone = grad([&](const auto& p) { return f(p, y, z); }, x) * grad([&](const auto& q) { return f(x, q, z); }, y) +
                       grad([&](const auto& r) { return f(x, y, r); }, z);
    return std::get<0>(all) * std::get<1>(all) + std::get<2>(all) - alone;
  };
  DefaultDevice device;
  const weft_test::Alone::context context(device, {});
  const auto x = weft_test::tensor_of<double>(device, {4, 3}, weft_test::waves(12, 0.3, 0.8));
  const auto zero = weft::forward(weft_test::Formula(difference), context, x).output;
  CHECK(weft_test::difference(weft_test::numbers_of(zero), std::vector<double>(12, 0)) < 1e-14);
  weft_test::check_rows(
      [](const auto& x) {
        const auto both = grad([](const auto& p, const auto& q) { return square(p) * q * q; }, x, exp(x));
        return std::get<0>(both) * x + std::get<1>(both);
      },
      {4, 3});
  // Of an argument that f does not use: zero.
  check_formula(
      [](const auto& x) { return std::get<1>(grad([](const auto& p, const auto&) { return square(p); }, x, x * 2.0)) + x * x; },
      {2, 3});
}

TEST_CASE("derivatives of choices, on one rank and on two") {
  check_everywhere([](const auto& p) { return relu(p) * p * p + abs(p) * square(p) + elu(p * p - 0.3, 0.7) * p; }, {4, 3});
  check_everywhere([](const auto& p) { return clamp(p, -0.4, 0.5) * square(p) + mish(p); }, {4, 3});
  check_everywhere([](const auto& p) { return maximum(square(p), 0.3 * p) * p - minimum(p * p * p, 0.2 + 0.0 * p) * square(p); },
                   {4, 3});
  check_everywhere(
      [](const auto& p) { return where(p > 0.1, square(p), 0.1 * p * p * p) * p + where(p <= square(p), p * p, 2.0); }, {4, 3});
  // Operands and masks that are repeated.
  check_everywhere(
      [](const auto& p) {
        const auto column = slice<1>(p, 0, 1);
        return maximum(square(p), 0.3 * column) * p - minimum(sin(column), p) * square(p) +
               where(column > 0.1, p * p, column * column * column) + where(p <= square(column), column * column, 2.0) * p;
      },
      {4, 3});
  check_everywhere([](const auto& p) { return pow(square(p) + 0.5, slice<1>(p, 1, 1)) * p - pow(2.0, p) * pow(2.0 + p, p); },
                   {4, 3});
  // Columns that tp cuts, beside a value that is whole.
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        return grad(
            [](const auto& p) {
              const auto column = slice<1>(to<Replicated<tp>>(p), 0, 1);
              const auto cut = to<Shard<tp, 1>>(square(p));
              return to<Invariant<tp>>(
                  sum<1>(maximum(cut, column) * cut + where(cut > column, cut * cut, column * column) + pow(cut + 1.0, column)));
            },
            x);
      },
      {4, 2});
  // Equal elements have half of the gradient each, also in the second derivative.
  check_derivative([](const auto& p) { return maximum(p, p) * square(p) + minimum(p * p, p * p) * p; }, {2, 3});
  // Masks and values of the forward around.
  check_formula(
      [](const auto& x) {
        return grad([&](const auto& p) { return where(x > p * 0.5, square(p) * x, p) + maximum(p * p, x); }, x);
      },
      {3, 2});
}

TEST_CASE("derivatives of softmax and its logarithm, on one rank and on two") {
  check_everywhere([](const auto& p) { return log_softmax<1>(p * p) * p; }, {4, 3});
  check_everywhere([](const auto& p) { return square(log_sum_exp(p * 2.0)); }, {4, 3});
  check_derivative([](const auto& p) { return log_softmax<1>(p * p) * square(p); }, {2, 3, 2});
}

TEST_CASE("derivatives of products of batches of matrices, on one rank and on two") {
  check_everywhere([](const auto& p) { return square(batched_matmul(batched_matmul_transposed(p * p, p), p)); }, {4, 2, 3});
  check_everywhere([](const auto& p) { return batched_transposed_matmul(square(p), p) * 0.5; }, {4, 2, 3});
  // A grad inside of a grad.
  check_derivative([](const auto& p) { return grad([](const auto& q) { return batched_matmul_transposed(q * q, q); }, p) * p; },
                   {2, 2, 3});
}

namespace {

template <std::int32_t... Ids>
auto ids_beside(const auto& x) {
  Tensor<std::int32_t, weft_test::Exec> ids(x.value().device(), {sizeof...(Ids)});
  const std::int32_t rows[] = {Ids...};
  copy_from_host(ids, std::span<const std::int32_t>(rows));
  return weft_test::constant_beside(x, ids);
}

}  // namespace

TEST_CASE("second derivatives of means and softmax over segments") {
  check_formula(
      [](const auto& x) {
        const auto ids = ids_beside<2, 0, 0, 2, 2>(x);  // segment 1 has no rows
        return grad([&](const auto& p) { return square(segment_mean(p * p, ids, 4)); }, x);
      },
      {5, 2});
  check_formula(
      [](const auto& x) {
        const auto ids = ids_beside<2, 0, 0, 2, 2>(x);
        return grad([&](const auto& p) { return square(segment_softmax(p * p, ids, 4)) * p; }, x);
      },
      {5, 2});
}

TEST_CASE("derivatives of convolutions by values: strides, dilations, groups, borders and kinds") {
  const auto all = [](auto f, const Shape& shape) { check_derivative(f, shape); };
  all(
      [](const auto& p) {
        const auto w = slice<2>(slice<3>(p, 0, 3), 1, 2);  // [2, 2, 2, 3]
        return square(conv2d(p * p, w, {.stride = 2, .padding = {0, 1}})) * 0.5;
      },
      {2, 2, 4, 4});
  all(
      [](const auto& p) {
        const auto w = slice<2>(p, 0, 2);  // [2, 3, 2]
        return square(conv1d(p, w, {.padding = 2, .dilation = 2, .mode = PaddingMode::periodic})) * 0.5;
      },
      {2, 3, 5});
  all(
      [](const auto& p) {
        const auto w = slice<3>(slice<4>(p, 0, 2), 0, 1);  // [2, 2, 2, 1, 2]
        return square(conv3d(p, w * w, {.padding = {1, 0, 0}, .mode = PaddingMode::replicate}));
      },
      {2, 2, 2, 2, 3});
  all(
      [](const auto& p) {
        const auto w = slice<1>(slice<2>(p, 0, 3), 0, 1);  // [2, 1, 3]
        return depthwise_conv1d(square(p), w, {.padding = 1, .mode = PaddingMode::reflect}) * p;
      },
      {2, 2, 4});
  all([](const auto& p) { return square(conv_transpose1d(p, p * p, {.stride = 2, .output_padding = 1})); }, {2, 2, 3});
  // A grad inside of a grad.
  all([](const auto& p) { return grad([](const auto& q) { return conv1d(q * q, slice<2>(q, 0, 2), {.padding = 1}); }, p) * p; },
      {2, 2, 3});
}

namespace {

/// A network of convolutions, with the channels between them cut over tp.
struct Field : Module<Field> {
  Conv2d<> in;
  Conv2d<Shard<tp, 0>> middle;
  ConvTranspose2d<> out;
  explicit Field(const auto& context)
      : in(context / "in", 2, 2, 3, {.padding = 1, .mode = PaddingMode::periodic, .initial_bias = normal(0.5)}),
        middle(context / "middle", 2, 4, 2, {.initial_bias = normal(0.5)}),
        out(context / "out", 4, 1, 2, {.bias = false}) {}
  auto energy(const auto& x) const {
    const auto cut = tanh(middle(to<Replicated<tp>>(tanh(in(x)))));  // [samples, 4 / tp, 2, 2]
    return out(to<Invariant<tp>>(square(cut)));
  }
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return energy(p); }, x);
  }
};
struct Norms : Module<Norms> {
  LayerNorm layer;
  RmsNorm rms;
  explicit Norms(const auto& context) : layer(context / "layer", 5, 0.1), rms(context / "rms", 5, 0.1) {}
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return square(layer(p * p)) * rms(p); }, x);
  }
};
/// On one rank, over dp, and over tp with x whole.
template <class L>
void check_layers(const Shape& shape) {
  const auto make = [](const auto& context) { return L(context / "layer"); };
  CHECK(testing::check_layer(make, shape).compared != 0);
  CHECK(testing::check_layer_on<dp>(2, make, shape).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, shape).compared != 0);
}

}  // namespace

TEST_CASE("derivatives of layers of convolutions, on one rank, over dp and over tp") { check_layers<Field>({2, 2, 3, 3}); }
TEST_CASE("derivatives of norms, on one rank, over dp and over tp") { check_layers<Norms>({4, 5}); }
