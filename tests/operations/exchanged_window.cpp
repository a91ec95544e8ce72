// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/exchanged_rows.hpp weft/operations/sums_over_space.hpp
// Layers and operations over images that domain axes cut: convolutions, transposed ones, pooling and enlargement exchange their
// halos themselves, and norms and means sum over the axes. Equal to one rank.
#include <weft/operations/exchanged_window.hpp>

#include <string>
#include <tuple>

#include <doctest/doctest.h>

#include <weft/nn/batch_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/exchanged_rows.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

struct Block : Module<Block> {
  Conv2d<> first, second, third;
  explicit Block(const auto& at)
      : first(at / "first", 2, 4, 3, {.padding = 1}),
        second(at / "second", 4, 4, {5, 3}, {.stride = {2, 1}, .padding = {2, 1}, .groups = 2}),
        third(at / "third", 4, 3, 3, {.padding = 2, .dilation = 2, .bias = false}) {}
  auto forward(const auto& x) const { return third(sigmoid(second(tanh(first(x))))); }
};
struct Volume : Module<Volume> {
  Conv3d<> layer;
  ConvTranspose3d<> up;
  explicit Volume(const auto& at)
      : layer(at / "layer", 2, 3, 3, {.padding = 1}), up(at / "up", 3, 2, {2, 3, 4}, {.stride = 2, .padding = {0, 1, 1}}) {}
  auto forward(const auto& x) const { return up(square(layer(x))); }
};
/// Paddings that copy elements: of the other end of the domain, or of the border.
template <PaddingMode mode>
struct Padded : Module<Padded<mode>> {
  Conv2d<> same, strided, wide;
  explicit Padded(const auto& at)
      : same(at / "same", 2, 3, 3, {.padding = 1, .mode = mode}),
        strided(at / "strided", 3, 3, {5, 3}, {.stride = {2, 1}, .padding = {2, 1}, .mode = mode}),
        wide(at / "wide", 3, 2, {2, 4}, {.padding = {1, 1}, .dilation = {3, 1}, .mode = mode, .padding_after = {2, 2}}) {}
  auto forward(const auto& x) const { return wide(tanh(strided(sigmoid(same(x))))); }
};
/// Pieces or terms of both axes as the whole.
auto whole(const auto& terms) { return to<Invariant<dy>>(to<Invariant<dx>>(terms)); }
/// The sum over each image of results that are cut unevenly.
auto totals(const auto& y) { return whole(sum<2>(sum<3>(y * y * y + y))); }

/// Transposed convolutions whose rows reach over their outputs on one side, on both, and not at all.
struct Up : Module<Up> {
  ConvTranspose2d<> plain, shifted, wide, sparse, uneven;
  explicit Up(const auto& at)
      : plain(at / "plain", 2, 3, 2, {.stride = 2}),
        shifted(at / "shifted", 2, 2, {4, 3}, {.stride = 2, .padding = 1, .output_padding = {0, 1}}),
        wide(at / "wide", 2, 4, 3,
             {.stride = {1, 3}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 2, .output_padding = {0, 2}}),
        sparse(at / "sparse", 2, 3, 1, {.stride = 3, .bias = false, .output_padding = 2}),
        uneven(at / "uneven", 2, 2, {5, 4}, {.stride = {2, 3}, .padding = {0, 3}, .padding_after = {1, 1}}) {}
  auto forward(const auto& x) const { return std::tuple(plain(x), tanh(shifted(x)), wide(x * x), sparse(x), totals(uneven(x))); }
};
/// Windows and enlargements without parameters.
struct Windows : Module<Windows> {
  explicit Windows(const auto&) {}
  auto forward(const auto& x) const {
    const auto y = x + 0.1 * square(x);
    return std::tuple(max_pool2d(y, {.kernel = 2}), max_pool2d(y, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}}),
                      avg_pool2d(y, {.kernel = 3, .stride = {2, 1}, .padding = 1}), exp(upsample(y)),
                      upsample(y, {.factor = {3, 2}, .mode = UpsampleMode::linear}),
                      upsample(y, {.factor = {1, 2}, .mode = UpsampleMode::linear}));
  }
};
/// Windows that reach over several pieces of two rows.
struct Far : Module<Far> {
  Conv2d<> plain;
  ConvTranspose2d<> up, dilated;
  explicit Far(const auto& at)
      : plain(at / "plain", 2, 2, 9, {.padding = 4}),
        up(at / "up", 2, 2, 13, {.stride = 2, .padding = 6, .output_padding = 1}),
        dilated(at / "dilated", 2, 3, 3, {.padding = 3, .dilation = 3}) {}
  auto forward(const auto& x) const {
    const auto y = x + 0.1 * square(x);
    return std::tuple(plain(y), up(y), dilated(y), max_pool2d(y, {.kernel = 9, .stride = 1, .padding = 4}),
                      max_pool2d(y, {.kernel = 7, .stride = 2, .padding = 3}),
                      avg_pool2d(y, {.kernel = 9, .stride = 1, .padding = 4}));
  }
};
/// Statistics of whole images.
struct Norms : Module<Norms> {
  GroupNorm<> groups;
  InstanceNorm<> instances;
  BatchNorm<> batch;
  LayerNorm channels;
  RmsNorm roots;
  explicit Norms(const auto& at)
      : groups(at / "groups", 2, 4),
        instances(at / "instances", 4, {.affine = true}),
        batch(at / "batch", 4),
        channels(at / "channels", 4),
        roots(at / "roots", 4) {}
  auto forward(const auto& x) const {
    const auto y = x + 0.3 * square(x);
    const auto last = permute<0, 2, 3, 1>(y);  // [samples, height, width, channels]
    return std::tuple(square(groups(y)), square(instances(y)), square(batch(y)), channels(last) * roots(last),
                      exp(global_avg_pool2d(y * y)), whole(mean<2>(y * y)), whole(mean<3>(exp(y))));
  }
};

/// A domain axis that cuts the rows of a norm.
struct Rows : Module<Rows> {
  LayerNorm norm;
  explicit Rows(const auto& at) : norm(at / "norm", 8) {}
  auto forward(const auto& x) const { return norm(sum<3>(x)); }
};

struct WideRing : Module<WideRing> {
  Conv2d<> wide;
  explicit WideRing(const auto& at) : wide(at / "wide", 2, 2, {5, 3}, {.padding = {2, 1}, .mode = PaddingMode::periodic}) {}
  auto forward(const auto& x) const { return wide(x); }
};

template <class L>
auto maker() {
  return [](const auto& context) { return L(context); };
}
template <class L>
void check(const Shape& shape, const Shape& by_three) {
  const testing::CheckOptions exact{.tolerance = 1e-13};
  check_layer(maker<L>(), shape);
  CHECK(check_layer_on<dx, Shard<dx, 2>>(2, maker<L>(), shape, exact).compared > 50);
  CHECK(check_layer_on<dy, Shard<dy, 3>>(3, maker<L>(), by_three, exact).compared > 50);
}
template <class L>
void refuses(const Shape& shape, const std::string& text) {
  try {
    check_layer_on<dx, Shard<dx, 2>>(2, maker<L>(), shape);
    FAIL("nothing was refused");
  } catch (const std::exception& error) {
    CHECK_MESSAGE(std::string(error.what()).find(text) != std::string::npos, std::string(error.what()));
  }
}

}  // namespace

TEST_CASE("convolution layers over cut images equal one rank") {
  const testing::CheckOptions exact{.tolerance = 1e-13};
  CHECK(check_layer_on<dx, Shard<dx, 2>>(2, maker<Block>(), {2, 2, 16, 6}, exact).compared > 500);
  check_layer_on<dy, Shard<dy, 3>>(3, maker<Block>(), {2, 2, 8, 9}, exact);
  check_layer_on<dz, Shard<dz, 4>>(2, maker<Volume>(), {1, 2, 3, 4, 6}, exact);
}
TEST_CASE("padding that copies elements, of the ring of ranks or at the border of the domain") {
  check<Padded<PaddingMode::periodic>>({2, 2, 12, 6}, {2, 2, 8, 12});
  check<Padded<PaddingMode::replicate>>({2, 2, 12, 6}, {2, 2, 8, 12});
  check<Padded<PaddingMode::reflect>>({2, 2, 12, 6}, {2, 2, 8, 12});
}
TEST_CASE("transposed convolutions") { check<Up>({2, 2, 8, 6}, {2, 2, 4, 9}); }
TEST_CASE("pooling and enlargement") { check<Windows>({2, 2, 8, 6}, {2, 2, 4, 12}); }
TEST_CASE("windows over pieces with fewer rows than they reach") {
  const testing::CheckOptions exact{.tolerance = 1e-13};
  CHECK(check_layer_on<dx, Shard<dx, 2>>(4, maker<Far>(), {2, 2, 8, 5}, exact).compared > 500);
  check_layer_on<dy, Shard<dy, 3>>(3, maker<Far>(), {1, 2, 5, 6}, exact);
  check_layer_on<dy, Shard<dy, 3>>(2, maker<Far>(), {1, 2, 5, 4}, exact);
  check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Far>(), {2, 2, 4, 4}, exact);
}
TEST_CASE("norms and means of whole images") { check<Norms>({3, 4, 4, 6}, {2, 4, 5, 9}); }
TEST_CASE("a norm of rows that a domain axis cuts is refused") {
  refuses<Rows>({2, 3, 8, 1}, "layer_norm([2, 3, 4]): dx cuts dim 2, and a norm needs whole rows, the last dim");
}
TEST_CASE("pieces that do not fit a layer are refused by its name") {
  refuses<WideRing>({1, 2, 2, 8},
                    "conv2d over images that dx cuts: [1, 2, 1, 8]: the piece of a rank of dx has 1 rows along "
                    "dim 2, and a neighbour asks for 2 of a ring, whose pieces have at least 2");
  refuses<Block>({1, 2, 6, 8}, "conv2d over images that an axis cuts: a window of stride 2, and a rank of dx has 3 rows");
}

namespace {

struct SlopeOfMean : Module<SlopeOfMean> {
  explicit SlopeOfMean(const auto&) {}
  auto forward(const auto& x) const {
    return grad([](const auto& p) { return mean<1>(square(p)); }, x);
  }
};

}  // namespace

TEST_CASE("inside of grad the mean along a cut dim divides by the extent of the whole") {
  CHECK(check_layer_on<dx, Shard<dx, 1>>(2, maker<SlopeOfMean>(), {3, 8}, {.tolerance = 1e-13}).compared > 50);
  CHECK(check_layer_on<dx, Shard<dx, 1>>(3, maker<SlopeOfMean>(), {3, 12}, {.tolerance = 1e-13}).compared > 50);
}
