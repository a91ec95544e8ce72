// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/sequential.hpp
// Layers made of layers where a composition had been refused or had meant something else: token ids, which have no gradient, go
// through Sequential, several layers of one input and layers that backward computes again; a Residual of a Residual is two.

#include <doctest/doctest.h>

#include <weft/nn/sequential.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/layers.hpp"
#include "support/parity.hpp"

using namespace weft;
using weft_test::batch_length;
using weft_test::batch_vocabulary;

namespace {

/// (a, b) -> a + b.
struct Sum {
  auto forward(const auto&, const auto& both) const { return Result{add(std::get<0>(both), std::get<1>(both)), Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) { return std::tuple(g, g); }
};

using Block = Residual<Residual<Sequential<LayerNorm, Linear<Column>, Gelu, Linear<Row>>>>;

/// Two token tables, summed and normed in the way that `Front` defines.
template <class FrontType>
struct Model {
  struct Config {
    std::size_t vocabulary = batch_vocabulary, layers = 4, width = 16;
  };
  using scalar = double;
  using Front = FrontType;
  using Block = ::Block;
  using Back = LanguageHead<LayerNorm>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Front(Embedding(context / "one", config.vocabulary, config.width, 1.0),
                 Embedding(context / "two", config.vocabulary, config.width, 1.0), LayerNorm(context / "first", config.width));
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "blocks" / std::to_string(index);
    return Residual(Residual(Sequential(LayerNorm(here / "norm", config.width), Linear<Column>(here / "up", config.width, 32),
                                        Gelu{}, Linear<Row>(here / "down", 32, config.width))));
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back(LayerNorm(context / "last", config.width), Embedding(context / "head", config.vocabulary, config.width).table);
  }
};

/// With a hand-written backward, for comparison with the composed fronts.
struct ByHand {
  Embedding one, two;
  LayerNorm norm;

  ByHand(Embedding a, Embedding b, LayerNorm n) : one(std::move(a)), two(std::move(b)), norm(std::move(n)) {}
  auto forward(const auto& context, const auto& ids) const {
    auto a = one.forward(context, ids), b = two.forward(context, ids);
    auto normed = norm.forward(context, add(a.output, b.output));
    return Result{std::move(normed.output), std::tuple(std::move(a.saved), std::move(b.saved), std::move(normed.saved))};
  }
  auto backward(const auto& context, auto saved, const auto& g) {
    const auto sum = weft::backward(norm, context, std::move(std::get<2>(saved)), g);
    weft::backward(one, context, std::move(std::get<0>(saved)), sum);
    weft::backward(two, context, std::move(std::get<1>(saved)), sum);
    return Nothing{};
  }
};

using weft_test::Branch, weft_test::Recompute;
using Tables = Sequential<Branch<Embedding, Embedding>, Sum>;
struct Composed : Module<Composed> {
  Sequential<Tables, LayerNorm> layers;
  Composed(Embedding a, Embedding b, LayerNorm n) : layers(Tables(Branch(std::move(a), std::move(b)), Sum{}), std::move(n)) {}
  auto forward(const auto& ids) const { return layers(ids); }
};
/// Computed again, where that is asked for.
struct Recomputed : Module<Recomputed> {
  Recompute<Sequential<Recompute<Tables>, LayerNorm>> layers;
  Recomputed(Embedding a, Embedding b, LayerNorm n)
      : layers(Sequential<Recompute<Tables>, LayerNorm>(
            Recompute<Tables>(Tables(Branch(std::move(a), std::move(b)), Sum{}), false), std::move(n))) {}
  auto forward(const auto& ids) const { return layers(ids); }
};

template <class Front>
using Dense = DataParallel<TensorParallel<PipelineParallel<Model<Front>, schedule::ZeroBubbleH1>>>;
template <class Front>
using ByRows = DataParallel<SequenceParallel<PipelineParallel<Model<Front>>>>;

}  // namespace

TEST_CASE("a front made of layers equals its backward written out, on one rank bit by bit") {
  const auto expected = weft_test::reference_of<Model<ByHand>>({});
  const auto composed = weft_test::reference_of<Model<Composed>>({}), recomputed = weft_test::reference_of<Model<Recomputed>>({});
  CHECK(expected.losses == composed.losses);
  CHECK(expected.gradients == composed.gradients);
  CHECK(expected.losses == recomputed.losses);
  CHECK(expected.gradients == recomputed.gradients);
  CHECK(expected.norms[0] > 0);
}

TEST_CASE("a front made of layers and blocks of two residuals equal one rank under tp, sp and pp") {
  const auto reference = weft_test::reference_of<Model<ByHand>>({});
  weft_test::check_layout<Dense<Composed>>({}, reference, 2, {.tp = 2}, 2, 1e-12);
  weft_test::check_layout<Dense<Composed>>({}, reference, 2, {.pp = 2}, 4, 1e-12);
  weft_test::check_layout<Dense<Composed>>({}, reference, 8, {.tp = 2, .pp = 2}, 2, 1e-12);
  weft_test::check_layout<ByRows<Composed>>({}, reference, 2, {.tp = 2}, 2, 1e-12);
  weft_test::check_layout<ByRows<Composed>>({}, reference, 4, {.tp = 2, .pp = 2}, 2, 1e-12);
}

TEST_CASE("a residual of a residual is two, and its copy is itself") {
  static_assert(std::is_same_v<decltype(Residual(Residual(Gelu{}))), Residual<Residual<Gelu>>>);
  static_assert(std::is_same_v<decltype(Branch(Branch(Gelu{}, Gelu{}))), Branch<Branch<Gelu, Gelu>>>);
  static_assert(std::is_same_v<decltype(Recompute(Recompute(Gelu{}, false))), Recompute<Recompute<Gelu>>>);
  Residual one = Residual(Gelu{});
  static_assert(std::is_same_v<decltype(one), Residual<Gelu>>);

  DefaultDevice device;
  const Context<Compute<DefaultDevice::execution_space, double>> context(device, {});
  Tensor<double, DefaultDevice::execution_space> x(device, {2, 3}), g(device, {2, 3});
  const std::vector<double> values{-1.5, -0.25, 0, 0.5, 1, 2}, ones(6, 1.0);
  copy_from_host(x, std::span<const double>(values));
  copy_from_host(g, std::span<const double>(ones));
  Gelu inner;
  Residual two(Residual(Gelu{}));
  auto alone = inner.forward(context, x);
  auto both = weft::forward(two, context, x);
  const auto gelu = copy_to_host(alone.output), output = copy_to_host(both.output);
  const auto slope = copy_to_host(backward(inner, context, std::move(alone.saved), g)),
             gradient = copy_to_host(backward(two, context, std::move(both.saved), g));
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(output[i] == doctest::Approx(2 * values[i] + gelu[i]).epsilon(1e-14));
    CHECK(gradient[i] == doctest::Approx(2 + slope[i]).epsilon(1e-14));
  }
  const auto make = [](const auto& here) { return Residual(Residual(Sequential(LayerNorm(here / "norm", 8), Gelu{}))); };
  CHECK(testing::check_layer(make, {4, 8}).compared > 0);
}
