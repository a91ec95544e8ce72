// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/upsample.hpp weft/kernels/upsample.hpp
// Enlarged images: values in plain loops over coordinates, derivatives, and one rank over dp and with channels that tp cuts.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <weft/kernels/upsample.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/upsample.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::Exec;

namespace {

using F = Tensor<float, Exec>;

// The weight of element `at` of a line of `extent` in the result `to`, whose centre lies at (to + 1/2) / factor - 1/2.
double weight_of(UpsampleMode mode, std::size_t at, std::size_t to, std::size_t extent, std::size_t factor) {
  if (mode == UpsampleMode::nearest) return std::floor(double(to) / double(factor)) == double(at) ? 1 : 0;
  const double place = std::clamp((double(to) + 0.5) / double(factor) - 0.5, 0.0, double(extent - 1));
  return std::max(0.0, 1 - std::abs(place - double(at)));
}
std::vector<double> enlarged(const std::vector<double>& x, const Shape& shape, const std::array<std::size_t, 3>& factor,
                             UpsampleMode mode) {
  const std::size_t planes = shape[0] * shape[1], d = shape[2], h = shape[3], w = shape[4];
  std::vector<double> y;
  for (std::size_t plane = 0; plane < planes; ++plane)
    for (std::size_t oz = 0; oz < d * factor[0]; ++oz)
      for (std::size_t oy = 0; oy < h * factor[1]; ++oy)
        for (std::size_t ox = 0; ox < w * factor[2]; ++ox) {
          double sum = 0;
          for (std::size_t z = 0; z < d; ++z)
            for (std::size_t iy = 0; iy < h; ++iy)
              for (std::size_t ix = 0; ix < w; ++ix)
                sum += weight_of(mode, z, oz, d, factor[0]) * weight_of(mode, iy, oy, h, factor[1]) *
                       weight_of(mode, ix, ox, w, factor[2]) * x[((plane * d + z) * h + iy) * w + ix];
          y.push_back(sum);
        }
  return y;
}

}  // namespace

TEST_CASE("enlarged images against plain loops") {
  DefaultDevice device;
  const Shape shape{2, 2, 3, 1, 4};
  for (const auto mode : {UpsampleMode::nearest, UpsampleMode::linear})
    for (const std::array<std::size_t, 3>& factor :
         std::vector<std::array<std::size_t, 3>>{{1, 1, 1}, {2, 3, 1}, {3, 2, 4}, {5, 1, 2}}) {
      const UpsampleOptions options{.factor = {factor[0], factor[1], factor[2]}, .mode = mode};
      const auto x = weft_test::tensor_of<double>(device, shape, weft_test::waves(48));
      const auto y = upsample(x, options);
      CHECK(y.shape() == Shape{2, 2, 3 * factor[0], factor[1], 4 * factor[2]});
      CHECK(weft_test::difference(weft_test::numbers_of(y), enlarged(weft_test::numbers_of(x), shape, factor, mode)) < 1e-14);
      const auto low = weft_test::tensor_of<bfloat16>(device, shape, weft_test::waves(48));
      CHECK(weft_test::difference(weft_test::numbers_of(upsample(low, options)),
                                  enlarged(weft_test::numbers_of(low), shape, factor, mode)) < 4e-3);
    }
}

TEST_CASE("derivatives of enlarged images, over dp and over tp") {
  const auto three = [](const auto& x) { return upsample(x * x, {.factor = {2, 1, 3}, .mode = UpsampleMode::linear}); };
  weft_test::check_formula(three, {2, 1, 2, 3, 3});
  weft_test::check_over<Shard<dp, 0>>(three, {2, 1, 2, 3, 3});
  weft_test::check_cut<1, decltype(three)>(three, {1, 4, 2, 1, 3});
  weft_test::check_formula([](const auto& x) { return exp(upsample(x)); }, {1, 2, 3, 4});
  weft_test::check_formula([](const auto& x) { return exp(upsample(x, {.factor = 4, .mode = UpsampleMode::linear})); },
                           {2, 1, 5});
}

TEST_CASE("channels become squares of elements") {
  DefaultDevice device;
  const auto x = weft_test::tensor_of<float>(device, {2, 12, 2, 3}, weft_test::waves(144));
  const auto numbers = weft_test::numbers_of(x);
  const auto y = pixel_shuffle(x, 2);
  CHECK(y.shape() == Shape{2, 3, 4, 6});
  std::vector<double> wanted;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t h = 0; h < 4; ++h)
        for (std::size_t w = 0; w < 6; ++w)
          wanted.push_back(numbers[((n * 12 + c * 4 + h % 2 * 2 + w % 2) * 2 + h / 2) * 3 + w / 2]);
  CHECK(weft_test::numbers_of(y) == wanted);
  const auto shuffled = [](const auto& x) { return exp(pixel_shuffle(x * x, 2)); };
  weft_test::check_formula(shuffled, {2, 8, 2, 3});
  weft_test::check_over<Shard<dp, 0>>(shuffled, {2, 8, 2, 3});
  weft_test::check_cut<1, decltype(shuffled)>(shuffled, {1, 8, 2, 3});
}

TEST_CASE("images that cannot be enlarged") {
  DefaultDevice device;
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] {
          upsample(F(device, {2, 3}));
        }) == "weft: upsample([2, 3]): expected [samples, channels, ...] with images of one to three dims");
  CHECK(refusal([&] {
          upsample(F(device, {1, 1, 2, 2}), {.factor = {0, 2}});
        }) ==
        "weft: upsample([1, 1, 2, 2]): factors 0 x 2 for images of 2 dims: one from 1 to 65535 for each dim, or one for all");
  CHECK(refusal([&] {
          pixel_shuffle(F(device, {2, 6, 4, 4}), 2);
        }) ==
        "weft: pixel_shuffle([2, 6, 4, 4]): expected [samples, channels, height, width] with channels in groups of factor(2) "
        "squared");
}
