// SPDX-License-Identifier: Apache-2.0
// Newton and Schulz's iteration: singular values go to about 1 and singular vectors stay, in every shape and type.

#include <weft/kernels/newton_schulz.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <weft/core/philox.hpp>

using namespace weft;

namespace {

/// x = sum over k of s_k u_k v_kᵀ with u_k, v_k columns of DCT matrices, which are orthonormal.
double basis(std::size_t n, std::size_t k, std::size_t i) {
  return std::sqrt((k == 0 ? 1.0 : 2.0) / double(n)) * std::cos(M_PI * double(k) * (double(i) + 0.5) / double(n));
}
double polynomial(double s, double norm, int steps) {
  s /= norm + 1e-7;
  for (int step = 0; step < steps; ++step) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
  return s;
}

template <class T>
void check(std::size_t rows, std::size_t columns, double tolerance) {
  using A = accumulate_t<T>;
  const std::size_t rank = std::min(rows, columns);
  std::vector<double> values(rank);
  double norm = 0;
  for (std::size_t k = 0; k < rank; ++k) norm += (values[k] = 3.0 / double(k + 1)) * values[k];
  norm = std::sqrt(norm);
  std::vector<A> x(rows * columns);
  std::vector<double> expected(x.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < rank; ++k) {
        const double part = basis(rows, k, i) * basis(columns, k, j);
        sum += values[k] * part;
        expected[i * columns + j] += polynomial(values[k], norm, 5) * part;
      }
      x[i * columns + j] = A(sum);
    }
  Device<Kokkos::DefaultHostExecutionSpace> device;
  kernels::newton_schulz<T>(device, rows, columns, x.data(), 5);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(double(x[i]) - expected[i]));
  INFO(rows << " x " << columns);
  CHECK(worst <= tolerance);
}

}  // namespace

TEST_CASE("each singular value goes through the polynomial, and vectors stay") {
  for (const auto& [rows, columns] : {std::pair{1, 1}, std::pair{1, 7}, std::pair{7, 1}, std::pair{5, 5}, std::pair{6, 17},
                                      std::pair{17, 6}, std::pair{32, 48}}) {
    check<double>(std::size_t(rows), std::size_t(columns), 1e-12);
    check<float>(std::size_t(rows), std::size_t(columns), 2e-5);
    check<bfloat16>(std::size_t(rows), std::size_t(columns), 0.2);
  }
}

TEST_CASE("after five steps singular values are near 1; zero stays zero, and nothing of no size") {
  for (const double s : {1.0, 0.5, 0.1, 0.01, 0.003}) {
    const double after = polynomial(s, 1, 5);
    CHECK(after > 0.6);
    CHECK(after < 1.3);
  }
  Device<Kokkos::DefaultHostExecutionSpace> device;
  std::vector<float> zero(12);
  kernels::newton_schulz<float>(device, 3, 4, zero.data(), 5);
  for (const float value : zero) CHECK(value == 0.0f);
  kernels::newton_schulz<float>(device, 0, 4, zero.data(), 5);
}
