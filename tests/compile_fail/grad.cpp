// SPDX-License-Identifier: Apache-2.0
// Derivatives inside of a forward, grad(f, x).
#include <weft/nn/group_norm.hpp>
#include <weft/operations/attention.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: operation_without_second_derivative
// A function of the program's own, whose derivative is a function of numbers.
// expect: f calls an operation without a second derivative
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return grad(
        [](const auto& p) {
          return map(
              p, [](auto v) { return v * v; }, [](auto v) { return 2 * v; });
        },
        x);
#else
    return grad([](const auto& p) { return sigmoid(square(p)); }, x);
#endif
  }
};
void go() {
  testing::check_layer([](const auto&) { return Slope(); }, {4, 8});
}

// section: layer_without_second_derivative
// The network has a layer whose backward is written on tensors.
// expect: f calls a layer or a Primitive with a backward of its own on tensors
// mention: HeadRmsNorm
struct Slope : Module<Slope> {
#ifdef WEFT_FAIL
  HeadRmsNorm layer;
  Slope(const auto& context) : layer(context / "layer", 8) {}
#else
  RmsNorm layer;
  Slope(const auto& context) : layer(context / "layer", 8) {}
#endif
  auto u(const auto& p) const { return tanh(layer(p)); }
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return u(p); }, x);
  }
};
void go() {
  testing::check_layer([](const auto& context) { return Slope(context / "slope"); }, {4, 8});
}

// section: attention_inside
// The fused attention inside of a derivative.
// expect: f calls attention, which has no second derivative: write its formula
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return grad([](const auto& p) { return attention(p, p * p, p, {.causal = false}); }, x);
#else
    return grad([](const auto& p) { return batched_matmul(softmax<2>(batched_matmul_transposed(p, p * p)), p); }, x);
#endif
  }
};
void go() {
  testing::check_layer([](const auto&) { return Slope(); }, {2, 3, 4});
}

// section: pooling_of_cut_images
// Windows that need rows of another rank inside of a derivative.
// expect: f pools or upsamples images that a domain axis cuts
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return grad([](const auto& p) { return avg_pool2d(p * p); }, x);
#else
    return grad([](const auto& p) { return p * p; }, x);
#endif
  }
};
void go() {
  testing::check_layer_on<dx, Shard<dx, 2>>(2, [](const auto&) { return Slope(); }, {2, 2, 4, 4});
}

// section: norm_of_cut_images
// A norm whose statistics are sums over other ranks inside of a derivative.
// expect: GroupNorm of images that a domain axis cuts has no second derivative
struct Slope : Module<Slope> {
  GroupNorm<> layer;
  Slope(const auto& context) : layer(context / "layer", 2, 4) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return grad([&](const auto& p) { return layer(p * p); }, x);
#else
    return grad([&](const auto& p) { return p * p; }, x);
#endif
  }
};
void go() {
  testing::check_layer_on<dx, Shard<dx, 2>>(2, [](const auto& context) { return Slope(context / "slope"); }, {2, 4, 4, 4});
}

// section: function_of_nothing
// The function returns a value of the forward around, which does not depend on its argument.
// expect: f must return one value that it computes from its argument
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
    const auto energy = square(x);
#ifdef WEFT_FAIL
    return grad([&](const auto&) { return energy; }, x);
#else
    return grad([&](const auto& p) { return energy * p; }, x);
#endif
  }
};
void go() {
  testing::check_layer([](const auto&) { return Slope(); }, {4, 8});
}

// section: gradient_of_a_value
// A value that is computed already, as PyTorch takes it.
// expect: f is a value and no function
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return grad(square(x), x);
#else
    return grad([](const auto& p) { return square(p); }, x);
#endif
  }
};
void go() {
  testing::check_layer([](const auto&) { return Slope(); }, {4, 8});
}

// section: arguments_of_two_levels
// One argument of the inner grad is inside of the outer one, the other is not.
// expect: one argument is inside of another grad than the other
struct Slope : Module<Slope> {
  auto forward(const auto& x) const {
    const auto energy = [](const auto& p, const auto& q) { return square(p) * q; };
    return grad(
        [&](const auto& p) {
#ifdef WEFT_FAIL
          return std::get<0>(grad(energy, p, x)) * p;
#else
          return std::get<0>(grad(energy, p, p * 2.0)) * p;
#endif
        },
        x);
  }
};
void go() {
  testing::check_layer([](const auto&) { return Slope(); }, {4, 8});
}

// section: placements_inside
// A missing collective inside of the differentiated function is the error that it is outside.
// expect: matmul of an Invariant operand with a sharded or Replicated one
struct Slope : Module<Slope> {
  Parameter<Shard<tp, 0>> in;
  Parameter<Shard<tp, 1>> out;
  Slope(const auto& context) : in(context, "in", {8, 8}, normal(0.5)), out(context, "out", {1, 8}, normal(0.5)) {}
  auto u(const auto& p) const {
#ifdef WEFT_FAIL
    return to<Invariant<tp>>(matmul(tanh(matmul(p, in)), out));
#else
    return to<Invariant<tp>>(matmul(tanh(matmul(to<Replicated<tp>>(p), in)), out));
#endif
  }
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return u(p); }, x);
  }
};
void go() {
  testing::check_layer_on<tp, Invariant<tp>>(2, [](const auto& context) { return Slope(context / "slope"); }, {4, 8});
}
