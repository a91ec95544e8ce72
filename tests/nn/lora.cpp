// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters beside linear layers: finite differences, every placement, and the bits of the base where there is none.
// covers: weft/engine/lora_options.hpp

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <weft/autograd/recompute.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/gelu_mlp.hpp>
#include <weft/nn/lora.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/testing/check_layer.hpp>

#include "support/layers.hpp"
#include "support/made_parameters.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

constexpr std::size_t width = 8, rows = 8;
using Plain = LoraLinear<Linear<>>;
template <StoredAs Stored>
using In = LoraLinear<Linear<Column, Stored>>;
template <StoredAs Stored>
using Out = LoraLinear<Linear<Row, Stored>>;

LoraOptions options(double dropout = 0) {
  return {.rank = 3, .alpha = 6, .dropout = dropout, .match = {"*in", "*out", "plain"}, .up_deviation = 0.4};
}

// A pair as in a block. Its columns are cut in two segments of whole heads; a mask is not drawn over segments.
template <StoredAs Stored>
auto pair(double dropout) {
  return [=](const auto& context) {
    const LoraOptions lora = options(dropout);
    const LinearOptions cut{0.3, dropout == 0 ? ParameterSharding{{{16, 4}, {8, 2}}} : ParameterSharding{{{24, 6}}}};
    return Residual(
        Sequential(In<Stored>(context / "in", width, 24, cut, &lora), Out<Stored>(context / "out", 24, width, cut, &lora)));
  };
}
auto entered(const auto& context) {
  const LoraOptions lora = options();
  using L = In<StoredAs::out_in>;
  return Residual(
      Sequential(weft_test::recompute_input(Sequential(LayerNorm(context / "norm", width), weft_test::EnterParallelRegion<tp>{}),
                                            L(context / "in", width, 16, {0.3}, &lora), true),
                 Out<StoredAs::out_in>(context / "out", 16, width, {0.3}, &lora)));
}
auto fused(bool lean) {
  return [lean](const auto& context) {
    const LoraOptions lora = options();
    return Residual(Sequential(LayerNorm(context / "norm", width),
                               GeluMlp(In<StoredAs::in_out>(context / "in", width, 16, {0.3}, &lora),
                                       Out<StoredAs::in_out>(context / "out", 16, width, {0.3}, &lora), lean)));
  };
}

}  // namespace

TEST_CASE("its backward by finite differences, and on two ranks as on one") {
  for (const double dropout : {0.0, 0.3}) {
    CHECK_NOTHROW(check_layer(
        [=](const auto& context) {
          const LoraOptions lora = options(dropout);
          return Plain(context / "plain", width, 5, {0.3}, &lora);
        },
        {rows, width}));
    const auto check = [&](const auto& make) {
      CHECK_NOTHROW(check_layer(make, {rows, width}));
      CHECK_NOTHROW(check_layer_on<tp>(2, make, {rows, width}));
      CHECK_NOTHROW(check_layer_on<cp>(2, make, {rows, width}));
      CHECK_NOTHROW(check_layer_on<dp>(2, make, {rows, width}));
    };
    check(pair<StoredAs::out_in>(dropout));
    check(pair<StoredAs::in_out>(dropout));
  }
  const auto make = [](const auto& context) { return entered(context); };
  CHECK_NOTHROW(check_layer(make, {rows, width}));
  CHECK_NOTHROW(check_layer_on<tp>(2, make, {rows, width}));
}

TEST_CASE("with a GELU between two of them") {
  for (const bool lean : {false, true}) {
    CHECK_NOTHROW(check_layer(fused(lean), {rows, width}));
    CHECK_NOTHROW(check_layer_on<tp>(2, fused(lean), {rows, width}));
  }
}

namespace {

struct Numbers {
  std::vector<double> output, input_gradient;
  std::map<std::string, std::vector<double>> values, gradients;
};
template <class Make>
Numbers numbers_of(Make&& make) {
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, double>> context(device, detail::Environment());
  weft_test::MadeParameters made;
  auto layer = make(made.beside(context));
  for (ParameterState* state : made.by_name()) state->gradients().renew();
  using X = Tensor<double, DefaultDevice::execution_space>;
  X x(device, {rows, width}), g(device, {rows, 5});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = double(i % 7) - 3.2;
  for (std::size_t i = 0; i < g.size(); ++i) g.data()[i] = double(i % 5) - 1.7;
  auto result = weft::forward(layer, context, x);
  Numbers numbers{copy_to_host(result.output), copy_to_host(backward(layer, context, std::move(result.saved), g)), {}, {}};
  for (const ParameterState* state : made.by_name()) {
    const auto *value = static_cast<const double*>(state->value().get()),
               *gradient = static_cast<const double*>(state->gradient().get());
    numbers.values[state->name()].assign(value, value + state->size());
    if (gradient) numbers.gradients[state->name()].assign(gradient, gradient + state->size());
  }
  return numbers;
}

}  // namespace

TEST_CASE("without an adapter it is its base, with the same bits; with a new one too, and A is drawn as in the paper") {
  const auto base = numbers_of([](const auto& context) { return Linear<>(context / "plain", width, 5, {0.3}); });
  const LoraOptions elsewhere{.rank = 3, .match = {"*.q_proj"}}, fresh{.rank = 3};
  const auto without = numbers_of([&](const auto& context) { return Plain(context / "plain", width, 5, {0.3}, &elsewhere); });
  const auto with = numbers_of([&](const auto& context) { return Plain(context / "plain", width, 5, {0.3}, &fresh); });
  CHECK(base.values.size() == 2);
  CHECK(without.output == base.output);
  CHECK(without.input_gradient == base.input_gradient);
  CHECK(without.values == base.values);
  CHECK(without.gradients == base.gradients);
  CHECK(with.output == base.output);
  CHECK(with.input_gradient == base.input_gradient);
  CHECK(with.gradients.at("plain.weight") == base.gradients.at("plain.weight"));
  CHECK(with.values.size() == 4);
  double largest = 0, sum = 0;
  for (const double a : with.values.at("plain.lora_A.weight")) largest = std::max(largest, std::abs(a)), sum += a * a;
  const double bound = 1 / std::sqrt(double(width));
  CHECK(largest < bound);
  CHECK(largest > 0.8 * bound);
  CHECK(sum / (3 * width) == doctest::Approx(bound * bound / 3).epsilon(0.5));
  for (const double b : with.values.at("plain.lora_B.weight")) CHECK(b == 0);
}
