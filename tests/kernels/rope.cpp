// SPDX-License-Identifier: Apache-2.0
#include <weft/kernels/rope.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;

TEST_CASE_TEMPLATE("rope rotates halves of heads by position, and its inverse turns back", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t rows = 9, heads = 3, head_width = 10, half = 5, stride = heads * head_width + 4;
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 4000, 5, 6, 1, 0};
  const auto x = normal<T>(rows * stride, 1);
  std::vector<T> y = x;
  std::vector<double> reference = widen(x);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t d = 0; d < half; ++d) {
        const double angle = positions[r] * std::pow(10000.0, -2.0 * double(d) / double(head_width));
        const std::size_t low = r * stride + h * head_width + d, high = low + half;
        reference[low] = double(x[low]) * std::cos(angle) - double(x[high]) * std::sin(angle);
        reference[high] = double(x[high]) * std::cos(angle) + double(x[low]) * std::sin(angle);
      }
  weft::kernels::rope<T>(device, rows, heads, head_width, x.data(), stride, y.data(), stride, positions.data(), 10000.0, false);
  check_close(y, reference);
  weft::kernels::rope<T>(device, rows, heads, head_width, y.data(), stride, y.data(), stride, positions.data(), 10000.0, true);
  check_close(y, widen(x), 2);
}

TEST_CASE("the table of angles follows a change of base and width") {
  DefaultDevice device;
  const std::vector<std::int32_t> position{3};
  for (const double base : {100.0, 10.0, 100.0})
    for (const std::size_t width : {2, 4}) {
      std::vector<double> x(width, 1.0);
      weft::kernels::rope<double>(device, 1, 1, width, x.data(), width, x.data(), width, position.data(), base, false);
      const double angle = 3 * std::pow(base, -2.0 * double(width / 2 - 1) / double(width));
      CHECK(x[width - 1] == doctest::Approx(std::cos(angle) + std::sin(angle)).epsilon(1e-14));
    }
}

TEST_CASE("an odd head width is refused") {
  DefaultDevice device;
  std::vector<float> x(3);
  const std::vector<std::int32_t> position{0};
  CHECK_THROWS_WITH_AS(weft::kernels::rope<float>(device, 1, 1, 3, x.data(), 3, x.data(), 3, position.data(), 1e4, false),
                       "weft: rope: head_width(3) is odd, values are rotated in pairs", weft::ShapeError);
}
