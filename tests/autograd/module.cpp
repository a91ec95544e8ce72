// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/tape.hpp weft/autograd/variable.hpp weft/autograd/primitive.hpp weft/autograd/forward.hpp
// covers: weft/autograd/recompute.hpp weft/operations/variables.hpp weft/autograd/layer_arguments.hpp
// Layers of which only the forward is written: derivatives, layouts, values used twice or not at all, several inputs and outputs,
// constants, recomputation, frozen parameters; and a model of them against one whose backward is written by hand.

#include <doctest/doctest.h>

#include <weft/autograd/forward.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/operations/variables.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/layers.hpp"
#include "support/parity.hpp"

using namespace weft;

// The arguments of a layer: an int is valid as a size, and a layer in place of arguments is not examined.
using Sizes = detail::LayerArguments<1, std::size_t, double>;
using AnyContext = Context<Compute<Kokkos::DefaultHostExecutionSpace, float>>;
static_assert(!detail::WrongArguments<Sizes, AnyContext, int> && !detail::WrongArguments<Sizes, AnyContext, int, float>);
static_assert(detail::WrongArguments<Sizes, AnyContext> && detail::WrongArguments<Sizes, int, double> &&
              detail::WrongArguments<Sizes>);
static_assert(detail::WrongArguments<Sizes, AnyContext, int, double, double> && !detail::WrongArguments<Sizes, LayerNorm>);

namespace {

struct GatedMlp : Module<GatedMlp> {
  LayerNorm norm;
  Parameter<> gain, shift;
  Parameter<Shard<tp, 0>> gate, up;
  Parameter<Shard<tp, 1>> down;
  GatedMlp(const auto& context, std::size_t width, std::size_t hidden)
      : norm(context / "norm", width),
        gain(context, "gain", {width}, ones),
        shift(context, "shift", {width}, normal(0.25)),
        gate(context, "gate", {hidden, width}, normal(0.25)),
        up(context, "up", {hidden, width}, normal(0.25)),
        down(context, "down", {width, hidden}, normal(0.25)) {}
  // Larger weights would make eight of these blocks multiply a rounding difference by 10^4.
  auto forward(const auto& x) const {
    auto inside = to<Replicated<tp>>(norm(x * gain + shift));
    auto active = Gelu()(matmul(inside, gate));
    return matmul(active * matmul(inside, up) * active, down);
  }
};

struct BothSides : Module<BothSides> {
  Parameter<> gain, shift;
  Parameter<Shard<tp, 0>> up, cut;
  Parameter<Shard<tp, 1>> down;
  BothSides(const auto& context, std::size_t width)
      : gain(context, "gain", {width}, normal(0.5)),
        shift(context, "shift", {width}, normal(0.5)),
        up(context, "up", {2 * width, width}, normal(0.5)),
        cut(context, "cut", {2 * width}, normal(0.5)),
        down(context, "down", {width, 2 * width}, normal(0.5)) {}
  auto forward(const auto& x) const {
    auto inside = cut + cut * (matmul(to<Replicated<tp>>(shift + gain * x - gain), up) - cut);
    return x - to_layout_of(x, matmul(inside, down));
  }
};

/// A block that brings a Partial value to x's layout and adds it.
struct GatedBlock : Module<GatedBlock> {
  GatedMlp mlp;
  bool again;
  GatedBlock(const auto& context, std::size_t width, std::size_t hidden, bool recomputed = false)
      : mlp(context, width, hidden), again(recomputed) {}
  auto forward(const auto& x) const {
    const auto part = [this](const auto& y) { return mlp(y); };
    return x + to_layout_of(x, again ? recompute(part, x) : mlp(x));
  }
};

/// The same arithmetic with a backward by hand.
struct ByHand {
  LayerNorm norm;
  Parameter<> gain, shift;
  Parameter<Shard<tp, 0>> gate, up;
  Parameter<Shard<tp, 1>> down;
  ByHand(const auto& context, std::size_t width, std::size_t hidden)
      : norm(context / "norm", width),
        gain(context, "gain", {width}, ones),
        shift(context, "shift", {width}, normal(0.25)),
        gate(context, "gate", {hidden, width}, normal(0.25)),
        up(context, "up", {hidden, width}, normal(0.25)),
        down(context, "down", {width, hidden}, normal(0.25)) {}
  auto forward(const auto& context, const auto& x) const {
    auto moved = add_row(times_row(x, gain.for_operand(x)), shift.for_operand(x));
    auto normed = norm.forward(context, moved);
    auto inside = to<Replicated<tp>>(context, normed.output);
    auto gated = Gelu().forward(context, matmul(inside, gate.for_operand(inside)));
    auto other = matmul(inside, up.for_operand(inside));
    auto product = times(gated.output, other);
    auto active = times(product, gated.output);
    auto y = matmul(active, down.for_operand(active));
    return Result{std::move(y),
                  std::tuple{x, std::move(normed.saved), inside, std::move(gated.saved), gated.output, other, product, active}};
  }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    auto& [x, normed, inside, before, gated, other, product, active] = saved;
    const auto da = matmul_input_gradient(g, down.for_operand(active));
    const auto dp = times(da, gated);
    const auto other_gradient = times(dp, gated);
    const auto before_gradient = Gelu().backward(context, before, add(times(da, product), times(dp, other)));
    auto di = to_layout_of<gradient_t<decltype(inside)>>(context, matmul_input_gradient(other_gradient, up.for_operand(inside)));
    di = add(di, matmul_input_gradient(before_gradient, gate.for_operand(inside)));
    auto split = weft::backward_input(norm, context, std::move(normed), to_layout_of<gradient_t<decltype(x)>>(context, di));
    auto dx = times_row(split.input_gradient, gain.for_operand(x));
    return InputGradient{std::move(dx), std::tuple{x, std::move(split.deferred), split.input_gradient, inside, before_gradient,
                                                   other_gradient, active, g}};
  }
  void backward_weight(const auto& context, auto deferred) {
    auto& [x, normed, moved, inside, gate_gradient, up_gradient, active, g] = deferred;
    accumulate_product(down, g, active);
    accumulate_product(up, up_gradient, inside);
    accumulate_product(gate, gate_gradient, inside);
    weft::backward_weight(norm, context, std::move(normed));
    shift.accumulate(context, sum_rows(moved));
    gain.accumulate(context, sum_rows(times(moved, x)));
  }
};

template <bool by_hand>
struct Net {
  struct Config {
    std::size_t vocabulary = weft_test::batch_vocabulary, layers = 8, width = 16, hidden = 24;
    bool recompute = false;
  };
  using scalar = double;
  using Front = Embedding;
  using Block = std::conditional_t<by_hand, Residual<ByHand>, GatedBlock>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width, 1.0);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "blocks" / std::to_string(index);
    if constexpr (by_hand) return Residual(ByHand(here, config.width, config.hidden));
    else return GatedBlock(here, config.width, config.hidden, config.recompute);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "last", config.width), front->table);
  }
};

/// A cube, as an operation with its own gradient; and a product that weighs its operands.
struct Cube : Primitive<Cube> {
  auto forward(const auto& x) const { return times(times(x, x), x); }
  auto gradient(const auto& g, const auto& x) const { return scale(times(g, square(x)), 3); }
};
struct Weighed : Primitive<Weighed> {
  double weight;
  explicit Weighed(double w) : weight(w) {}
  auto forward(const auto& x, const auto& y) const { return scale(times(x, y), weight); }
  auto gradient(const auto& g, const auto& x, const auto& y) const {
    return std::tuple(scale(times(g, y), weight), scale(times(g, x), weight));
  }
};

/// Several outputs, one of them unused, one used twice; a parameter and a value as operands; constants.
struct Mixed : Module<Mixed> {
  weft_test::Branch<Linear<>, Linear<>, Linear<>> three;
  Parameter<> rate;
  explicit Mixed(const auto& context)
      : three(Linear<>(context / "a", 8, 8, {0.5}), Linear<>(context / "b", 8, 8, {0.5}), Linear<>(context / "c", 8, 8, {0.5})),
        rate(context, "rate", {6, 8}, normal(0.5)) {}
  auto forward(const auto& x) const {
    auto [a, b, c] = three(x);
    return Weighed(0.25)(a, Cube()(a)) -
           b * beside(x, rate) / (x * x + 3.0 * Cube()(x) * Cube()(x) + beside(x, rate) * beside(x, rate));
  }
};

/// (x) -> (a, b) and (a, b) -> y, in a chain.
struct Fork : Module<Fork> {
  Parameter<> w;
  explicit Fork(const auto& context) : w(context, "w", {8, 8}, normal(0.5)) {}
  auto forward(const auto& x) const { return std::tuple(matmul(x, w), x); }
};
struct Join : Module<Join> {
  auto forward(const auto& a, const auto& b) const { return a * b - a; }
};

/// One of its inputs is not used.
struct Ignores : Module<Ignores> {
  auto forward(const auto& a, const auto&) const { return -a; }
};

/// The gradient stops at one of the factors; an evaluation records nothing.
struct Detached : Module<Detached> {
  auto forward(const auto& x) const { return x * x.detach(); }
};

}  // namespace

TEST_CASE("a parameter in front of a value, and subtracted") {
  const auto make = [](const auto& context) { return BothSides(context / "sides", 6); };
  testing::check_layer(make, {4, 6});
  testing::check_layer_on<tp>(2, make, {4, 6});
  testing::check_layer_on<dp>(2, make, {4, 6});
}

TEST_CASE("backward stops at a detached value, and without a backward nothing is recorded") {
  DefaultDevice device;
  Context<Compute<DefaultDevice::execution_space, double>> context(device, detail::Environment());
  using X = Tensor<double, DefaultDevice::execution_space>;
  const auto x = [&] {
    X made(device, {2, 2});
    for (std::size_t i = 0; i < 4; ++i) made.data()[i] = double(i) + 1;
    return made;
  };
  Detached layer;
  auto step = weft::forward(layer, context, x());
  CHECK(copy_to_host(step.output) == std::vector<double>{1, 4, 9, 16});
  CHECK(copy_to_host(weft::backward(layer, context, std::move(step.saved), x())) == std::vector<double>{1, 4, 9, 16});
  context.engine.records = false;
  X input = x();
  auto evaluated = weft::forward(layer, context, input);
  CHECK(input.unique());  // nothing kept it
  CHECK(evaluated.output.data()[3] == 16);
}

TEST_CASE("the backward of a forward is its derivative, on one rank and on several") {
  const auto make = [](const auto& context) { return GatedMlp(context / "mlp", 8, 16); };
  CHECK(testing::check_layer(make, {6, 8}).error < 1e-8);
  for (const int ranks : {2, 4}) {
    CHECK(testing::check_layer_on<tp>(ranks, make, {4, 8}).compared > 1000);
    CHECK(testing::check_layer_on<dp>(ranks, make, {4, 8}).compared > 400);
  }
  for (const bool again : {false, true}) {
    const auto block = [again](const auto& context) { return GatedBlock(context / "block", 8, 16, again); };
    CHECK(testing::check_layer(block, {6, 8}).compared > 100);
    CHECK(testing::check_layer_on<tp>(2, block, {4, 8}).compared > 400);
    CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, block, {4, 8}).compared > 200);
  }
}

TEST_CASE("values used twice or not at all, operations of one's own, several inputs and outputs") {
  CHECK(testing::check_layer([](const auto& context) { return Mixed(context); }, {6, 8}).compared > 100);
  const auto chain = [](const auto& context) { return Sequential(Fork(context), Join()); };
  CHECK(testing::check_layer(chain, {6, 8}).compared > 40);
  CHECK(testing::check_layer_on<tp>(2, chain, {6, 8}).compared > 40);
  const auto ignoring = [](const auto& context) { return Sequential(Fork(context), Ignores()); };
  CHECK(testing::check_layer(ignoring, {6, 8}).compared > 40);
  CHECK(testing::check_layer([](const auto&) { return Cube(); }, {6, 8}).compared > 20);
}

TEST_CASE("a model of forward-only blocks gives the bits of one whose backward is written by hand") {
  using ByHandNet = Net<true>;
  using ForwardNet = Net<false>;
  DefaultDevice device;
  SingleDevice<ByHandNet> one(device, ByHandNet::Config{});
  for (const bool again : {false, true}) {
    SingleDevice<ForwardNet> other(device, ForwardNet::Config{.recompute = again});
    one.discard_gradients();
    CHECK(one.train_step(weft_test::make_batch(0, 0, 1, 2)) == other.train_step(weft_test::make_batch(0, 0, 1, 2)));
    REQUIRE(one.parameter_names() == other.parameter_names());
    for (const auto& name : one.parameter_names()) {
      double largest = 0;
      const auto expected = one.gradient(name), seen = other.gradient(name);
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      REQUIRE(largest > 0);
      for (std::size_t i = 0; i < seen.size(); ++i) CHECK(std::abs(seen[i] - expected[i]) <= 1e-14 * largest);
    }
    CHECK(one.evaluate(weft_test::make_batch(1, 0, 1, 1)) == other.evaluate(weft_test::make_batch(1, 0, 1, 1)));
  }
}

template <class M, class S>
using Over = DataParallel<SequenceParallel<PipelineParallel<M, S>>>;
template <class M>
using OverTensor = DataParallel<TensorParallel<PipelineParallel<M, schedule::ZeroBubbleH1>>>;
template <class M>
using Sharded = FullyShardedDataParallel<TensorParallel<PipelineParallel<M, schedule::OneForwardOneBackward>>>;

TEST_CASE("a model of forward-only blocks is one rank under dp, tp, sp, pp, zero bubble and FSDP") {
  using Model = Net<false>;
  const Model::Config config;
  weft_test::check_all_layouts<OverTensor<Model>>(config, 1e-13);
  const auto reference = weft_test::reference_of<Model>(config);
  weft_test::check_layouts<Sharded<Model>>(4, config, reference, 1e-13);
  weft_test::check_layouts<Over<Model, schedule::ZeroBubbleH1>>(4, config, reference, 1e-13);
  for (const std::size_t world : {2, 4})
    weft_test::check_layout<Over<Model, schedule::Zbv>>(config, reference, world, {.tp = world / 2, .pp = 2}, 4, 1e-13);
}
