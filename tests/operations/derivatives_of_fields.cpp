// SPDX-License-Identifier: Apache-2.0
// Derivatives inside of a forward of operations on fields and lines: padding and shifts, Fourier transforms, pooling, upsampling,
// einsum, chosen elements, softmax along the last dim, and norms of images. Values, their own derivatives by finite differences,
// and equality on two ranks.

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <weft/context/axes_in_force.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/sort.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/pipeline/stages.hpp>

#include "support/derivative.hpp"
#include "support/formula.hpp"

using namespace weft;
using weft_test::check_derivative;
using weft_test::check_everywhere;
using weft_test::check_formula;

TEST_CASE("derivatives of padded, reversed and shifted dims, and of running sums") {
  check_everywhere([](const auto& p) { return square(pad<1, 2>(p * p, 1, 2, PaddingMode::periodic)); }, {4, 2, 3});
  check_derivative([](const auto& p) { return square(pad<0, 1>(p * p, 1, 2)); }, {2, 3});
  check_derivative([](const auto& p) { return square(pad<1, 2>(p * p, 1, 1, PaddingMode::reflect)); }, {2, 2, 3});
  check_derivative([](const auto& p) { return square(pad<1>(p * p, 2, 1, PaddingMode::replicate)); }, {2, 3});
  check_everywhere([](const auto& p) { return flip<1>(p * p) * p * roll<1>(p, -1) + square(cumsum<1>(p)) * p; }, {4, 3});
}
TEST_CASE("derivatives of Fourier transforms") {
  check_derivative([](const auto& p) { return square(fft<1>(p * p)) * fft<1>(p); }, {2, 3, 2});
  check_derivative([](const auto& p) { return square(ifft<0, 1>(p * p)); }, {2, 3, 2});
  check_everywhere([](const auto& p) { return irfft<1>(square(rfft<1>(p * p)), 4) * p; }, {4, 4});
  check_derivative([](const auto& p) { return square(rfft<0, 1>(irfft<0, 1>(square(rfft<0, 1>(p)), 3))); }, {2, 3});
  // A grad inside of a grad.
  check_derivative([](const auto& p) { return grad([](const auto& q) { return square(rfft<1>(q * q)); }, p) * p; }, {2, 3});
}
TEST_CASE("derivatives of pooling and upsampling") {
  check_everywhere([](const auto& p) { return square(avg_pool2d(p * p, {.kernel = 2, .stride = 1, .padding = 1})); },
                   {4, 2, 3, 3});
  // Windows that overlap, with equal and with different largest elements.
  check_everywhere([](const auto& p) { return square(max_pool2d(p * p, {.kernel = 2, .stride = 1})) * 0.5; }, {4, 2, 3, 3});
  check_derivative([](const auto& p) { return max_pool1d(square(p), {.kernel = 3, .stride = 2, .padding = 1}); }, {2, 2, 5});
  check_derivative([](const auto& p) { return square(avg_pool3d(p * p)) + square(max_pool3d(p * p)); }, {1, 2, 2, 2, 4});
  check_everywhere([](const auto& p) { return square(global_avg_pool2d(p * p)); }, {4, 2, 3, 2});
  check_derivative([](const auto& p) { return square(upsample(p * p, {.factor = 2, .mode = UpsampleMode::linear})); },
                   {2, 1, 2, 3});
  check_derivative([](const auto& p) { return square(pixel_shuffle(p * p, 2)); }, {1, 4, 2, 2});
  // A grad inside of a grad.
  check_derivative([](const auto& p) { return grad([](const auto& q) { return max_pool1d(q * q * q); }, p) * p; }, {1, 2, 4});
}
TEST_CASE("derivatives of chosen elements") {
  check_everywhere([](const auto& p) { return square(max<1>(p * p)) + sum<1>(p); }, {4, 3});
  check_derivative([](const auto& p) { return square(sort<1>(p * p).first) * p; }, {2, 4});
  check_derivative([](const auto& p) { return square(topk<0>(p * p, 2, SortOrder::ascending).first); }, {3, 2});
  // The places are a constant of the forward around, by which other rows are chosen.
  check_derivative([](const auto& p) { return square(index_select(p * p, argmax<1>(p))); }, {3, 3});
  check_formula(
      [](const auto& x) {
        Tensor<std::int32_t, weft_test::Exec> ids(x.value().device(), {5});
        const std::int32_t rows[] = {2, 0, 0, 2, 2};  // segment 1 has no rows
        copy_from_host(ids, std::span<const std::int32_t>(rows));
        const auto chosen = weft_test::constant_beside(x, ids);
        return grad([&](const auto& p) { return square(segment_max(p * p, chosen, 4)); }, x);
      },
      {5, 2});
}
TEST_CASE("derivatives of softmax along the last dim and of einsum") {
  check_everywhere([](const auto& p) { return softmax(p * p) * p + square(log_softmax(p)) * p; }, {4, 3});
  check_derivative([](const auto& p) { return log_softmax(p * p) * square(p) + softmax(p); }, {2, 2, 3});
  check_derivative([](const auto& p) { return softmax(p * p) * p; }, {3});
  check_everywhere([](const auto& p) { return square(einsum<"sik,sjk->sij">(p * p, p)); }, {4, 2, 3});
  check_derivative(
      [](const auto& p) { return einsum<"ij,kj->ik">(p, grad([](const auto& q) { return einsum<"ij,ij->">(q, q * q); }, p)); },
      {2, 3});
}

namespace {

/// Norms of images whose channels tp cuts, in whole groups.
struct Norms : Module<Norms> {
  GroupNorm<Shard<tp, 0>> groups;
  InstanceNorm<Shard<tp, 0>> planes;
  explicit Norms(const auto& context)
      : groups(context / "groups", 2, 4, {.epsilon = 0.1}), planes(context / "planes", 4, {.epsilon = 0.1}) {}
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return square(groups(p * p)) * planes(p); }, x);
  }
};
/// Of whole channels, and of two dims.
struct WholeNorms : Module<WholeNorms> {
  GroupNorm<> groups;
  GroupNorm<> rows;
  explicit WholeNorms(const auto& context) : groups(context / "groups", 2, 4, {.epsilon = 0.1}), rows(context / "rows", 2, 4) {}
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return square(groups(p * p)) * unflatten<1>(rows(mean<2>(p)), 1); }, x);
  }
};

}  // namespace

TEST_CASE("derivatives of norms of images") {
  const auto whole = [](const auto& context) { return WholeNorms(context / "layer"); };
  CHECK(testing::check_layer(whole, {4, 4, 3}).compared != 0);
  CHECK(testing::check_layer_on<dp>(2, whole, {4, 4, 3}).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, whole, {4, 4, 3}).compared != 0);
  const auto cut = [](const auto& context) { return Norms(context / "layer"); };
  CHECK(testing::check_layer(cut, {2, 4, 2, 2}).compared != 0);
  CHECK(testing::check_layer_on<tp, Shard<tp, 1>>(2, cut, {2, 4, 2, 2}).compared != 0);
}

namespace {

struct Batched : Module<Batched> {
  BatchNorm<Shard<tp, 0>> norm;
  explicit Batched(const auto& context) : norm(context / "norm", 4, {.epsilon = 0.1, .momentum = 0.25}) {}
  auto forward(const auto& x) const {
    return grad([&](const auto& p) { return square(norm(p * p)) * p; }, x);
  }
};
// The running statistics after one step, in training, of the layer itself or inside of grad.
std::vector<double> running_after(bool inside) {
  DefaultDevice device;
  weft_test::Alone::context context(device, {});
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  context.construction.buffers = &buffers;
  Batched layer(context);
  const auto x = weft_test::tensor_of<double>(device, {2, 4, 3}, weft_test::waves(24));
  if (inside) {
    auto made = weft::forward(layer, context, x);
    weft::backward(layer, context, std::move(made.saved), x);
  } else {
    auto made = layer.norm.forward(context, square(x));
    layer.norm.backward_input(context, std::move(made.saved), x);
  }
  detail::renew(detail::AxesInForce(context), buffers);
  return layer.norm.running();
}

}  // namespace

TEST_CASE("derivatives of a norm over samples, and its running statistics") {
  const auto make = [](const auto& context) { return Batched(context / "layer"); };
  CHECK(testing::check_layer(make, {4, 4, 2}).compared != 0);
  CHECK(testing::check_layer_on<dp>(2, make, {4, 4, 2}).compared != 0);
  CHECK(testing::check_layer_on<tp, Shard<tp, 1>>(2, make, {4, 4, 2}).compared != 0);
  const auto expected = running_after(false);
  CHECK(expected[0] != 0);
  CHECK(weft_test::difference(running_after(true), expected) < 1e-15);
}
