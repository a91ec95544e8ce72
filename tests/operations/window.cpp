// SPDX-License-Identifier: Apache-2.0
// Windows over images whose dims an axis cuts, in one to three dims: finite differences, and ranks against one rank.
#include <weft/operations/window.hpp>

#include <string>

#include <doctest/doctest.h>

#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

struct along : UserAxis<0> {
  static constexpr std::string_view name = "along";
};

/// x with so many rows of the neighbours along an axis' dim, whichever dim of the images it cuts.
template <int before, int after = before, class C, class X>
auto reach(const Variable<C, X>& x) {
  constexpr int dim = detail::PieceOf<placement_t<X, along>>::dim;
  if constexpr (dim < 2) return x;
  else return to<Halo<along, dim, before, after>>(x);
}

/// One exchange for two convolutions, a stride that needs no row from below, a dilation, and pooling.
struct Net : Module<Net> {
  Parameter<> u, a, v, b, w, c, each, d, point;
  explicit Net(const auto& at)
      : u(at, "u", {4, 3, 3, 3}, normal(0.3)),
        a(at, "a", {4}, normal(0.3)),
        v(at, "v", {4, 4, 3, 3}, normal(0.3)),
        b(at, "b", {4}, normal(0.3)),
        w(at, "w", {5, 4, 3, 3}, normal(0.3)),
        c(at, "c", {5}, normal(0.3)),
        each(at, "each", {4, 1, 3, 3}, normal(0.3)),
        d(at, "d", {4}, normal(0.3)),
        point(at, "point", {2, 4, 1, 1}, normal(0.3)) {}
  auto forward(const auto& x) const {
    const auto y = sigmoid(conv2d<Window{3, 1, 1}>(reach<2>(x), u, a));
    const auto z = conv2d<Window{3, 1, 1}>(y * y / (y + 1.0), v, b);
    const auto far = depthwise_conv2d<Window{.kernel = 3, .padding = 2, .dilation = 2}>(reach<2>(z), each, d);
    return std::tuple(conv2d<Window{3, 2, 1}>(reach<1, 0>(z), w, c), far, max_pool2d<Window{2, 2}>(z),
                      max_pool2d<Window{3, 1, 1}>(reach<1>(tanh(z))), avg_pool2d<Window{3, 2, 1}>(reach<1, 0>(z)),
                      conv2d<Window{1, 1}>(z, point));
  }
};

/// Three dims, and channels of tp beside the cut.
struct Volume : Module<Volume> {
  Parameter<Shard<tp, 0>> wide, bias;
  Parameter<Shard<tp, 1>> narrow;
  Parameter<> each;
  explicit Volume(const auto& at)
      : wide(at, "wide", {4, 2, 3, 3, 3}, normal(0.3)),
        bias(at, "bias", {4}, normal(0.3)),
        narrow(at, "narrow", {2, 4, 2, 2, 2}, normal(0.3)),
        each(at, "each", {2, 1, 3, 3, 3}, normal(0.3)) {}
  auto forward(const auto& x) const {
    const auto hidden = tanh(conv3d<Window{3, 1, 1}>(to<Replicated<tp>>(reach<1>(x)), wide, bias));
    const auto home = to<Invariant<tp>>(conv3d<Window{2, 2}>(hidden, narrow));
    return std::tuple(depthwise_conv3d<Window{3, 1, 1}>(reach<1>(home), each), max_pool3d<Window{3, 1, 1}>(reach<1>(home)),
                      avg_pool3d<Window{3, 1, 1}>(reach<1>(home * home)));
  }
};

struct Line : Module<Line> {
  Parameter<> w, each;
  explicit Line(const auto& at) : w(at, "w", {3, 2, 5}, normal(0.3)), each(at, "each", {3, 1, 3}, normal(0.3)) {}
  auto forward(const auto& x) const {
    const auto y = conv1d<Window{5, 1, 2}>(reach<3>(x), w);
    return std::tuple(depthwise_conv1d<Window{3, 1, 1}>(y, each), max_pool1d<Window{3, 1, 1}>(reach<1>(y)),
                      avg_pool1d<Window{3, 2, 1}>(reach<1, 0>(y)));
  }
};

/// Windows over a ring of ranks. One rank pads by its own rows.
struct PeriodicLine : Module<PeriodicLine> {
  Parameter<> u, v, w;
  explicit PeriodicLine(const auto& at)
      : u(at, "u", {4, 2, 5}, normal(0.3)), v(at, "v", {4, 4, 3}, normal(0.3)), w(at, "w", {5, 4, 2}, normal(0.3)) {}
  template <class C, class X>
  auto forward(const Variable<C, X>& x) const {
    if constexpr (detail::PieceOf<placement_t<X, along>>::dim == 2) {
      const auto y = tanh(conv1d<Window{5, 1, 2}>(to<Halo<along, 2, 3, 3, Border::periodic>>(x), u));
      const auto z = conv1d<Window{3, 1, 1}>(y, v);
      return std::tuple(z, conv1d<Window{2, 2}>(z, w));
    } else {
      const auto y = tanh(conv1d(x, u, {.padding = 2, .mode = PaddingMode::periodic}));
      const auto z = conv1d(y, v, {.padding = 1, .mode = PaddingMode::periodic});
      return std::tuple(z, conv1d(z, w, {.stride = 2}));
    }
  }
};

/// Weights of another kernel than the window's.
struct Other : Module<Other> {
  Parameter<> w;
  explicit Other(const auto& at) : w(at, "w", {3, 2, 5}, normal(0.3)) {}
  auto forward(const auto& x) const { return conv1d<Window{3, 1, 1}>(reach<1>(x), w); }
};

template <class L>
auto maker() {
  return [](const auto& context) { return L(context); };
}

}  // namespace

TEST_CASE("windows over cut images equal one rank and finite differences") {
  CHECK(check_layer(maker<Net>(), {2, 3, 8, 12}).error < 1e-6);
  const testing::CheckOptions exact{.tolerance = 1e-13};
  CHECK(check_layer_on<along, Shard<along, 2>>(2, maker<Net>(), {2, 3, 16, 12}, exact).compared > 1000);
  check_layer_on<along, Shard<along, 3>>(3, maker<Net>(), {2, 3, 8, 18}, exact);
}
TEST_CASE("windows in three dims and in one") {
  const testing::CheckOptions exact{.tolerance = 1e-13};
  check_layer_on<along, Shard<along, 2>>(2, maker<Volume>(), {1, 2, 8, 4, 4}, exact);
  check_layer_on<along, Shard<along, 4>>(2, maker<Volume>(), {1, 2, 4, 4, 8}, exact);
  check_layer_on<along, Shard<along, 2>>(4, maker<Line>(), {2, 2, 16}, exact);
}
TEST_CASE("windows over a periodic border") {
  for (const int ranks : {2, 3, 4})
    for (const std::size_t rows : {std::size_t(24), std::size_t(2 * ranks)})  // pieces of two rows are narrower than the halo
      check_layer_on<along, Shard<along, 2>>(ranks, maker<PeriodicLine>(), {2, 2, rows}, {.tolerance = 1e-13});
}
TEST_CASE("pieces and weights that do not fit the window are refused") {
  const auto refuses = [](const Shape& shape, auto make, const std::string& text) {
    try {
      check_layer_on<along, Shard<along, 2>>(2, make, shape);
      FAIL("nothing was refused: ", text);
    } catch (const std::exception& error) {
      CHECK_MESSAGE(std::string(error.what()).find(text) != std::string::npos, error.what());
    }
  };
  refuses({1, 3, 14, 12}, maker<Net>(), "a window of stride 2, and a rank of along has 7 rows");
  refuses({1, 3, 2, 12}, maker<Net>(), "the piece of a rank of along has 1 rows along dim 2, and a neighbour asks for 2");
  refuses({1, 2, 8}, maker<Other>(), "conv1d: weights of [3, 2, 5] for a window of 3 elements in each of 1 dim");
}
