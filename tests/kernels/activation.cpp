// SPDX-License-Identifier: Apache-2.0
#include <weft/kernels/activation.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); }
double silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE_TEMPLATE("gelu is GPT-2's gelu_new, and its slope is right", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t n = 5003;
  std::vector<T> x(n), y(n), dx(n);
  const auto dy = normal<T>(n, 1);
  for (std::size_t i = 0; i < n; ++i) x[i] = to<T>((double(i) - 2500) / 200);
  kernels::gelu_forward<T>(device, n, x.data(), y.data());
  kernels::gelu_backward<T>(device, n, x.data(), dy.data(), dx.data());
  for (std::size_t i = 0; i < n; ++i) {
    const double v = double(x[i]), h = 1e-5;
    CHECK(std::abs(double(y[i]) - gelu(v)) <= tolerance<T> * std::max(1e-3, std::abs(gelu(v))));
    CHECK(std::abs(double(dx[i]) - double(dy[i]) * (gelu(v + h) - gelu(v - h)) / (2 * h)) <= std::max(1e-8, tolerance<T>) * 4);
  }
}

TEST_CASE_TEMPLATE("swiglu takes slices, and its gradients are right", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t rows = 7, width = 37, stride = 2 * width + 5;
  const auto fused = normal<T>(rows * stride, 1, 3), dy = normal<T>(rows * width, 2);
  std::vector<T> y(rows * width), d_fused(rows * stride, to<T>(9));
  kernels::swiglu_forward<T>(device, rows, width, fused.data(), stride, fused.data() + width, stride, y.data());
  kernels::swiglu_backward<T>(device, rows, width, fused.data(), stride, fused.data() + width, stride, dy.data(), d_fused.data(),
                              stride, d_fused.data() + width, stride);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < width; ++i) {
      const double g = double(fused[r * stride + i]), u = double(fused[r * stride + width + i]), d = double(dy[r * width + i]),
                   h = 1e-5;
      CHECK(std::abs(double(y[r * width + i]) - silu(g) * u) <= tolerance<T> * std::max(1.0, std::abs(silu(g) * u)));
      const double slope = (silu(g + h) - silu(g - h)) / (2 * h);
      CHECK(std::abs(double(d_fused[r * stride + i]) - d * u * slope) <= std::max(1e-8, tolerance<T>) * (1 + std::abs(d * u)));
      CHECK(std::abs(double(d_fused[r * stride + width + i]) - d * silu(g)) <= tolerance<T> * (1 + std::abs(d * silu(g))));
    }
    for (std::size_t i = 2 * width; i < stride; ++i) CHECK(double(d_fused[r * stride + i]) == 9);
  }
}

TEST_CASE("the exponential of the lanes is within 2 ulp, and keeps zeros, ends and NaN") {
  using V = weft::kernels::detail::lanes_for<Kokkos::DefaultExecutionSpace, float>;
  double worst = 0;
  for (double x = -87; x < 88; x += 0.00317) {
    float result[64];
    exp(V(float(x))).store(result);
    const double right = std::exp(double(float(x)));
    const float rounded = float(right);
    worst = std::max(worst, std::abs(double(result[0]) - right) / (double(std::nextafter(rounded, INFINITY)) - double(rounded)));
  }
  CHECK(worst <= 2);
  const auto at = [](float x) {
    float result[64];
    exp(V(x)).store(result);
    return result[0];
  };
  CHECK(at(0) == 1);
  CHECK(at(-INFINITY) == 0);
  CHECK(at(-200) == 0);
  CHECK(at(200) > 1e38f);
  CHECK(std::isnan(at(NAN)));
}
