// SPDX-License-Identifier: Apache-2.0
#include <weft/kernels/norm.hpp>

#include <tests/kernels/norm_sums.hpp>
#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

namespace {

constexpr double epsilon = 1e-5;

template <class T>
struct Case {
  std::size_t rows, width;
  std::vector<T> x = normal<T>(rows * width, 1, 2), gain = normal<T>(width, 2), bias = normal<T>(width, 3),
                 dy = normal<T>(rows * width, 4);
  std::vector<T> y = std::vector<T>(rows * width), dx = std::vector<T>(rows * width);
  std::vector<accumulate_t<T>> mean = std::vector<accumulate_t<T>>(rows), rstd = mean,
                               dgain = std::vector<accumulate_t<T>>(width), dbias = dgain;
  Case(std::size_t rows_, std::size_t width_) : rows(rows_), width(width_) {
    for (auto& value : x) value = to<T>(double(value) + 3);  // a mean far from 0
  }

  void run(DefaultDevice& device, bool root_mean_square, bool accumulate) {
    if (root_mean_square) {
      kernels::rms_norm_forward<T>(device, rows, width, x.data(), gain.data(), y.data(), rstd.data(), epsilon);
      kernels::rms_norm_backward_input<T>(device, rows, width, x.data(), gain.data(), rstd.data(), dy.data(), dx.data(),
                                          accumulate ? dx.data() : nullptr);
      kernels::rms_norm_backward_weight<T>(device, rows, width, x.data(), rstd.data(), dy.data(), dgain.data(), accumulate);
    } else {
      kernels::layer_norm_forward<T>(device, rows, width, x.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data(),
                                     epsilon);
      kernels::layer_norm_backward_input<T>(device, rows, width, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(),
                                            dx.data(), accumulate ? dx.data() : nullptr);
      kernels::layer_norm_backward_weight<T>(device, rows, width, x.data(), mean.data(), rstd.data(), dy.data(), dgain.data(),
                                             dbias.data(), accumulate);
    }
  }
};

std::vector<double> reference(std::size_t rows, std::size_t width, bool root_mean_square, const std::vector<double>& x,
                              const std::vector<double>& gain, const std::vector<double>& bias) {
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    if (!root_mean_square)
      for (std::size_t i = 0; i < width; ++i) mean += x[r * width + i] / double(width);
    for (std::size_t i = 0; i < width; ++i) square += (x[r * width + i] - mean) * (x[r * width + i] - mean) / double(width);
    for (std::size_t i = 0; i < width; ++i)
      y[r * width + i] = (x[r * width + i] - mean) / std::sqrt(square + epsilon) * gain[i] + (root_mean_square ? 0 : bias[i]);
  }
  return y;
}

}  // namespace

TEST_CASE("gradients of both norms are those of finite differences") {
  DefaultDevice device;
  for (const bool root_mean_square : {false, true}) {
    Case<double> c(3, 19);
    c.run(device, root_mean_square, false);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& gain, const std::vector<double>& bias) {
      return dot(c.dy, reference(c.rows, c.width, root_mean_square, x, gain, bias));
    };
    check_gradient(c.x, c.dx, [&](const auto& x) { return loss(x, c.gain, c.bias); });
    check_gradient(c.gain, c.dgain, [&](const auto& gain) { return loss(c.x, gain, c.bias); });
    if (!root_mean_square) check_gradient(c.bias, c.dbias, [&](const auto& bias) { return loss(c.x, c.gain, bias); });
  }
}

TEST_CASE_TEMPLATE("norms of all types follow the reference, add on request, and do not depend on threads", T, float, double,
                   bfloat16) {
  Devices devices;
  for (const bool root_mean_square : {false, true})
    for (const bool accumulate : {false, true})
      for (const std::size_t width : {1, 16, 100, 384}) {
        CAPTURE(root_mean_square);
        CAPTURE(accumulate);
        CAPTURE(width);
        Case<T> c(131, width);
        Case<double> d(131, width);
        d.x = widen(c.x), d.gain = widen(c.gain), d.bias = widen(c.bias), d.dy = widen(c.dy);
        c.dx = normal<T>(c.dx.size(), 7), d.dx = widen(c.dx);
        Case<T> many = c;
        c.run(devices.one, root_mean_square, accumulate);
        d.run(devices.one, root_mean_square, accumulate);
        many.run(devices.all, root_mean_square, accumulate);
        check_close(c.y, reference(c.rows, width, root_mean_square, d.x, d.gain, d.bias));
        if (width > 1) {  // the gradient of a single value is 0 times a large number
          check_close(c.dx, d.dx);
          CHECK(difference(c.dgain, d.dgain) <= (std::is_same_v<T, double> ? 1e-12 : 1e-5));
        }
        if (!root_mean_square) CHECK(difference(c.dbias, d.dbias) <= (std::is_same_v<T, double> ? 1e-12 : 1e-5));
        CHECK((same_bits(c.y, many.y) && same_bits(c.dx, many.dx) && same_bits(c.dgain, many.dgain) &&
               same_bits(c.dbias, many.dbias)));
      }
}

TEST_CASE_TEMPLATE("the sums of a residual connection in the kernels of a norm have the bits of kernels of their own", T, float,
                   double, bfloat16, float16) {
  DefaultDevice device;
  check_norm_sums<T>(device);
}
