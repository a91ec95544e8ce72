// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/mlp_activation.hpp
// The MLP for devices with fused products equals that of hosts: the same bits without fusion, and correct in every layout.

#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include <weft/kernels/mlp_activation.hpp>
#include <weft/models/gpt.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/gelu_mlp.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/testing/check_layer.hpp>

#include "support/layers.hpp"
#include "support/made_parameters.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

using In = Linear<Column, StoredAs::in_out>;
using Out = Linear<Row, StoredAs::in_out>;
constexpr std::size_t width = 8, rows = 6;

const auto fused = [](bool lean, MlpActivation activation = MlpActivation::gelu_tanh) {
  return [=](const auto& context) {
    return Residual(Sequential(
        weft_test::Recompute(LayerNorm(context / "norm", width, 1e-5), lean),
        GeluMlp(In(context / "in", width, 4 * width, {0.3}), Out(context / "out", 4 * width, width, {0.3}), lean, activation)));
  };
};
const auto apart = [](bool lean) {
  return [lean](const auto& context) {
    return Residual(Sequential(
        weft_test::recompute_input(LayerNorm(context / "norm", width, 1e-5), In(context / "in", width, 4 * width, {0.3}), lean),
        weft_test::recompute_input(Gelu{}, Out(context / "out", 4 * width, width, {0.3}), lean)));
  };
};

// Output, input gradient and parameter gradients, in one row.
template <class Make>
std::vector<float> numbers_of(Make&& make) {
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, float>> context(device, detail::Environment());
  weft_test::MadeParameters made;
  auto layer = make(made.beside(context));
  for (ParameterState* state : made.by_name()) state->gradients().renew();
  using X = Tensor<float, DefaultDevice::execution_space>;
  X x(device, {rows, width}), g(device, {rows, width});
  for (std::size_t i = 0; i < rows * width; ++i) {
    x.data()[i] = float(i % 7) - 3.2f;
    g.data()[i] = float(i % 5) - 1.7f;
  }
  auto result = weft::forward(layer, context, x);
  const auto dx = backward(layer, context, std::move(result.saved), g);
  std::vector<float> all = copy_to_host(result.output);
  const auto add = [&](const std::vector<float>& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(copy_to_host(dx));
  for (const ParameterState* state : made.by_name()) {
    const auto* gradient = static_cast<const float*>(state->gradient().get());
    add(std::vector<float>(gradient, gradient + state->size()));
  }
  return all;
}

}  // namespace

// A model's type is the same on hosts and GPUs: the operation chooses the kernels of a product and its GELU.
static_assert(std::is_same_v<models::BasicGpt<float>::Block, models::BasicGpt<double>::Block> &&
              std::is_same_v<models::BasicGpt<float>::Block, models::BasicGpt<bfloat16>::Block>);

TEST_CASE("the same bits as norm, linear, GELU and linear one after the other, kept or computed again") {
  const auto want = numbers_of(apart(false));
  CHECK(want.size() == 2 * rows * width + 2 * width + 8 * width * width + 5 * width);
  CHECK(numbers_of(fused(false)) == want);
  CHECK(numbers_of(fused(true)) == want);
}

TEST_CASE("its backward, on one rank, over tp, and under sequence parallelism") {
  for (const bool lean : {false, true}) {
    CHECK_NOTHROW(check_layer(fused(lean), {rows, width}));
    CHECK_NOTHROW(check_layer_on<tp>(2, fused(lean), {rows, width}));
    CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, fused(lean), {rows, width})));
  }
}

TEST_CASE("other activations: the formula, and their backward in every layout") {
  const std::vector<std::pair<MlpActivation, double (*)(double)>> all = {
      {MlpActivation::gelu_tanh,
       [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))); }},
      {MlpActivation::gelu, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }},
      {MlpActivation::relu, [](double x) { return x > 0 ? x : 0; }},
      {MlpActivation::silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {MlpActivation::tanh, [](double x) { return std::tanh(x); }}};
  DefaultDevice device;
  const std::vector<double> x = {-3, -0.7, -1e-3, 0.2, 1.5, 4}, one(x.size(), 1.0);
  for (const auto& [activation, formula] : all) {
    std::vector<double> y(x.size()), slope(x.size());
    kernels::activation_forward(device, activation, x.size(), x.data(), y.data());
    kernels::activation_backward(device, activation, x.size(), x.data(), one.data(), slope.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(y[i] == doctest::Approx(formula(x[i])).epsilon(1e-14));
      CHECK(slope[i] == doctest::Approx((formula(x[i] + 1e-5) - formula(x[i] - 1e-5)) / 2e-5).epsilon(1e-8));
    }
    if (activation == MlpActivation::gelu_tanh || activation == MlpActivation::relu) continue;  // above; has no slope at 0
    CHECK_NOTHROW(check_layer(fused(true, activation), {rows, width}));
    CHECK_NOTHROW(check_layer_on<tp>(2, fused(false, activation), {rows, width}));
  }
  CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, fused(true, MlpActivation::silu), {rows, width})));
}
