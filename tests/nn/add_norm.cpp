// SPDX-License-Identifier: Apache-2.0
// A residual block with a norm of the sum, which fuses the additions, and other layers, which do not: the derivative of its
// forward in every layout, and the bits and placements of a sum, a norm and a sum of gradients apart, in fewer kernels.

#include <doctest/doctest.h>

#include <weft/autograd/module.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/nn/add_norm.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/made_parameters.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

constexpr std::size_t rows = 8, width = 12;

/// A layer whose additions are separate kernels.
template <class L>
class Apart : public Primitive<Apart<L>> {
 public:
  explicit Apart(L layer) : layer_(std::move(layer)) {}
  auto forward(const auto& context, const auto& x) const { return weft::forward(layer_, context, x); }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return weft::backward_input(layer_, context, std::move(saved), g);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(layer_, context, std::move(deferred)); }

 private:
  L layer_;
};

/// y + inner(y) of y = x + first(norm(x)).
template <class Norm, class Inner>
class Block : public Module<Block<Norm, Inner>> {
 public:
  Block(const auto& context, Norm norm, Inner inner, bool again)
      : norm_(std::move(norm)), first_(context / "first", width, width, {0.5}), inner_(std::move(inner)), again_(again) {}
  auto forward(const auto& x) const {
    return again_ ? recompute([this](const auto& v) { return this->block(v); }, x) : block(x);
  }

 private:
  auto block(const auto& x) const {
    const auto [y, inside] = add_norm(inner_, x, to_layout_of(x, first_(norm_(x))));
    return y + to_layout_of(y, inside);
  }
  Norm norm_;
  Linear<> first_;
  Inner inner_;
  bool again_;
};

/// A layer that is a Module.
class OwnNorm : public Module<OwnNorm> {
 public:
  explicit OwnNorm(const auto& context) : norm_(context, width) {}
  auto forward(const auto& x) const { return norm_(x); }

 private:
  LayerNorm norm_;
};

const auto layer_norm = [](const auto& context) { return LayerNorm(context / "norm", width); };
const auto rms_norm = [](const auto& context) { return RmsNorm(context / "norm", width); };
const auto whole_linear = [](const auto& context) { return Linear<>(context / "in", width, width, {0.5}); };
const auto module_norm = [](const auto& context) { return OwnNorm(context / "norm"); };

template <class Make>
auto block_of(Make make, bool again = false) {
  return [=](const auto& context) { return Block(context, LayerNorm(context / "first_norm", width), make(context), again); };
}
template <class Make>
auto block_apart(Make make) {
  return [=](const auto& context) {
    return Block(context, Apart(LayerNorm(context / "first_norm", width)), Apart(make(context)), false);
  };
}

template <class T>
void append(std::vector<double>& all, const T* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) all.push_back(double(accumulate_t<T>(values[i])));
}

/// Output, input gradient and parameter gradients of a layer that computes in T, in one row.
template <class T, class Make>
std::vector<double> numbers_of(Make&& make) {
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, T>> context(device, detail::Environment());
  weft_test::MadeParameters made;
  auto layer = make(made.beside(context));
  for (ParameterState* state : made.by_name()) state->gradients().renew();
  using X = Tensor<T, DefaultDevice::execution_space>;
  X x(device, {rows, width}), g(device, {rows, width});
  for (std::size_t i = 0; i < rows * width; ++i) {
    x.data()[i] = T(accumulate_t<T>(i % 7) - accumulate_t<T>(3.2));
    g.data()[i] = T(accumulate_t<T>(i % 5) - accumulate_t<T>(1.7));
  }
  auto result = weft::forward(layer, context, x);
  const auto dx = backward(layer, context, std::move(result.saved), g);
  std::vector<double> all;
  append(all, result.output.data(), result.output.size());
  append(all, dx.data(), dx.size());
  for (const ParameterState* state : made.by_name())
    append(all, static_cast<const accumulate_t<T>*>(state->gradient().get()), state->size());
  return all;
}

/// The kernels of one forward and backward.
template <class Make>
Rehearsal kernels_of(Make&& make) {
  Rehearsal notes;
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, float>> context(device, detail::Environment());
  weft_test::MadeParameters made;
  auto layer = make(made.beside(context));
  for (ParameterState* state : made.by_name()) state->gradients().renew();
  using X = Tensor<float, DefaultDevice::execution_space>;
  X x(device, {rows, width});
  device.rehearse(notes);
  auto result = weft::forward(layer, context, x);
  backward(layer, context, std::move(result.saved), x);
  return notes;
}

}  // namespace

static_assert(detail::FusesAddition<LayerNorm> && detail::FusesAddition<RmsNorm> && !detail::FusesAddition<HeadRmsNorm> &&
              !detail::FusesAddition<Linear<>> && !detail::FusesAddition<Apart<LayerNorm>>);

TEST_CASE_TEMPLATE("the bits of sums and norms apart, outputs and all gradients", T, float, double, bfloat16) {
  const auto check = [](const auto& make) {
    const auto want = numbers_of<T>(block_apart(make));
    CHECK(want.size() > 2 * rows * width + width * width);
    CHECK(numbers_of<T>(block_of(make)) == want);
    CHECK(numbers_of<T>(block_of(make, true)) == want);
  };
  check(layer_norm);
  check(rms_norm);
  check(whole_linear);
}

TEST_CASE("it is the derivative of its forward, on one rank, over tp, dp and under sequence parallelism") {
  // Compares 24 elements of x and of each matrix, and all of each vector of 12.
  const auto check = [](const auto& make, std::size_t compared) {
    for (const bool again : {false, true}) CHECK(check_layer(block_of(make, again), {rows, width}).compared == compared);
    CHECK_NOTHROW(check_layer_on<tp>(2, block_of(make), {rows, width}));
    CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(2, block_of(make), {rows, width})));
    CHECK_NOTHROW(check_layer_on<dp>(2, block_of(make), {rows, width}));
  };
  check(layer_norm, 2 * 24 + 5 * 12);
  check(rms_norm, 2 * 24 + 4 * 12);
  check(whole_linear, 3 * 24 + 4 * 12);
  check(module_norm, 2 * 24 + 5 * 12);
}

TEST_CASE("a residual connection around norms takes one kernel of sums where it took four") {
  const Rehearsal apart = kernels_of(block_apart(layer_norm)), joined = kernels_of(block_of(layer_norm));
  const double matrix = rows * width * sizeof(float);
  // Separate: x + branch, y + inside, and in backward one sum each for the gradients of y and of x.
  CHECK(apart.of("elementwise").launches == 4);
  CHECK(apart.of("elementwise").bytes == 4 * 3 * matrix);
  CHECK(joined.of("elementwise").launches == 1);
  CHECK(joined.of("elementwise").bytes == 3 * matrix);
  CHECK(joined.of("norm").launches == apart.of("norm").launches);
  // The first sum's terms instead of the sum that it writes, and the gradient of the other use twice.
  CHECK(joined.of("norm").bytes == apart.of("norm").bytes + (2 + 1 + 1) * matrix);
  CHECK(joined.launches == apart.launches - 3);
  const Rehearsal residual = kernels_of([](const auto& context) { return Residual(layer_norm(context)); });
  CHECK(residual.of("elementwise").launches == 1);  // the one in forward
}

TEST_CASE("terms of different shapes are refused") {
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, float>> context(device, detail::Environment());
  weft_test::MadeParameters made;
  const LayerNorm norm = layer_norm(made.beside(context));
  using X = Tensor<float, DefaultDevice::execution_space>;
  CHECK_THROWS_AS(norm.forward_on_sum(context, X(device, {rows, width}), X(device, {rows - 1, width})), ShapeError);
}
