// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/fourier.hpp weft/operations/along_dim.hpp weft/operations/sums_over_space.hpp
// Fourier transforms of fields that domain axes cut: a cut moves to another dim while its dim is transformed. The largest
// elements along cut dims. Values, gradients and second derivatives equal one rank.
#include <weft/operations/fourier.hpp>

#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include <weft/operations/along_dim.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

template <class F>
struct Formula : Module<Formula<F>> {
  explicit Formula(const auto&) {}
  auto forward(const auto& x) const { return F::of(x); }
};
template <class F>
auto maker() {
  return [](const auto& context) { return Formula<F>(context); };
}
const testing::CheckOptions exact{.tolerance = 1e-13};

/// A product in the space of frequencies, with channels cut in place of dims 2 and 3.
struct Product {
  static auto of(const auto& x) {
    const auto whole = to<Shard<dy, 1>>(to<Shard<dx, 1>>(x));
    const auto z = rfft<2, 3>(whole);
    const auto y = irfft<2, 3>(z * z * 0.1 + z, whole.shape()[3]);
    return to<Shard<dx, 2>>(to<Shard<dy, 3>>(y)) * x;
  }
};
/// Dims one after the other, with channels whole between them, as a neural operator has its low frequencies.
struct Low {
  static auto of(const auto& x) {
    const auto across = to<Shard<dy, 1>>(x);
    const auto low = to<Invariant<dy>>(slice<3>(rfft<3>(across), 0, 2));
    const auto z = to<Invariant<dx>>(fft<2>(to<Shard<dx, 1>>(low)));
    const auto up = to<Shard<dx, 2>>(ifft<2>(to<Shard<dx, 1>>(z * z)));
    return to<Shard<dy, 3>>(irfft<3>(pad<3>(to<Shard<dy, 1>>(up), 0, across.shape()[3] / 2 - 1), across.shape()[3]));
  }
};
/// Pencils of volumes: an axis whose dim is next cuts the dim that is done. Back in the other order.
struct Pencils {
  static auto of(const auto& x) {
    const auto z = concat<4>(unflatten<3>(x, 1), unflatten<3>(square(x), 1));  // [samples, x, y, z, 2]
    const auto by_z = fft<3>(z);
    const auto by_y = fft<2>(to<Shard<dy, 3>>(by_z));
    const auto by_x = fft<1>(to<Shard<dx, 2>>(by_y));
    const auto back = ifft<1>(by_x * by_x * 0.1);
    return exp(ifft<3>(to<Shard<dy, 2>>(ifft<2>(to<Shard<dx, 1>>(back)))) * 0.01);
  }
};
/// A derivative of a formula with transforms, which backward differentiates again.
struct Slope {
  static auto of(const auto& x) {
    return grad([](const auto& p) { return square(Product::of(p)) * p; }, x) * x;
  }
};
/// Pools of whole images, and of one dim.
struct Largest {
  static auto of(const auto& x) {
    const auto y = x + 0.3 * square(x);
    return std::tuple(exp(max<2>(max<3>(y))), square(max<3>(y)) * 2.0, max<2>(y));
  }
};
/// Elements of two values, so that most of the largest have equals on other ranks.
struct Equal {
  static auto of(const auto& x) {
    const auto y = map(
        x, [](auto v) { return v > 0.3 ? decltype(v)(2) : decltype(v)(1); }, [](auto) { return 1; });
    return std::tuple(max<2>(max<3>(y)) * 2.0, max<2>(max<2>(y * y)), max<2>(y), max<3>(y));
  }
};
struct SlopeOfLargest {
  static auto of(const auto& x) {
    return grad([](const auto& p) { return square(max<2>(max<3>(p * p * p))); }, x) * x;
  }
};

}  // namespace

TEST_CASE("transforms of fields that one axis or two cut") {
  check_layer(maker<Product>(), {2, 4, 4, 4});
  CHECK(check_layer_on<dx, Shard<dx, 2>>(2, maker<Product>(), {2, 4, 6, 5}, exact).compared > 50);
  CHECK(check_layer_on<dy, Shard<dy, 3>>(3, maker<Product>(), {1, 3, 4, 6}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Product>(), {2, 4, 4, 6}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Low>(), {2, 4, 4, 6}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({1, 4}, maker<Low>(), {1, 4, 3, 8}, exact).compared > 50);
}
TEST_CASE("pencils of volumes") {
  CHECK(check_layer_on<Shard<dx, 1>, Shard<dy, 2>>({2, 2}, maker<Pencils>(), {1, 4, 4, 4}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 1>, Shard<dy, 2>>({2, 3}, maker<Pencils>(), {1, 2, 6, 3}, exact).compared > 30);
}
TEST_CASE("second derivatives of transforms over cut dims") {
  CHECK(check_layer_on<dx, Shard<dx, 2>>(2, maker<Slope>(), {1, 2, 4, 3}, exact).compared > 20);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Slope>(), {1, 4, 4, 4}, exact).compared > 50);
}
TEST_CASE("the largest elements of cut dims") {
  check_layer(maker<Largest>(), {2, 3, 4, 5});
  CHECK(check_layer_on<dx, Shard<dx, 2>>(3, maker<Largest>(), {2, 3, 6, 5}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Largest>(), {2, 3, 4, 6}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<Equal>(), {2, 3, 4, 6}, exact).compared > 50);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, maker<SlopeOfLargest>(), {2, 3, 4, 6}, exact).compared > 50);
}
