// SPDX-License-Identifier: Apache-2.0
// Convolution layers over images that domain axes cut exchange their halos themselves: equal to one rank.
#include <weft/operations/exchanged_window.hpp>

#include <string>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/operations/functions.hpp>
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
  explicit Volume(const auto& at) : layer(at / "layer", 2, 3, 3, {.padding = 1}) {}
  auto forward(const auto& x) const { return square(layer(x)); }
};
struct Periodic : Module<Periodic> {
  Conv1d<> layer;
  explicit Periodic(const auto& at) : layer(at / "layer", 2, 3, 3, {.padding = 1, .mode = PaddingMode::periodic}) {}
  auto forward(const auto& x) const { return layer(x); }
};

template <class L>
auto maker() {
  return [](const auto& context) { return L(context); };
}

}  // namespace

TEST_CASE("convolution layers over cut images equal one rank") {
  const testing::CheckOptions exact{.tolerance = 1e-13};
  CHECK(check_layer_on<dx, Shard<dx, 2>>(2, maker<Block>(), {2, 2, 16, 6}, exact).compared > 500);
  check_layer_on<dy, Shard<dy, 3>>(3, maker<Block>(), {2, 2, 8, 9}, exact);
  check_layer_on<dz, Shard<dz, 4>>(2, maker<Volume>(), {1, 2, 3, 4, 6}, exact);
}
TEST_CASE("padding that another rank has is refused") {
  try {
    check_layer_on<dx, Shard<dx, 2>>(2, maker<Periodic>(), {1, 2, 8});
    FAIL("nothing was refused");
  } catch (const std::exception& error) {
    CHECK_MESSAGE(std::string(error.what()).find("conv1d over images that an axis cuts") != std::string::npos, error.what());
  }
}
