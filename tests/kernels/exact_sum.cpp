// SPDX-License-Identifier: Apache-2.0
// The sum of squares without rounding between blocks: the same bits wherever multiples of 32 elements are cut, and right for
// numbers of every size.
#include <weft/kernels/exact_sum.hpp>
#include <weft/tensor/transfer.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/core/philox.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;

// The norms squared of the pieces that `cuts` make, added up in any order.
template <class T>
double sum_of(const std::vector<T>& values, std::vector<std::size_t> cuts, bool backwards = false) {
  DefaultDevice device;
  Tensor<T, Exec> x(device, {values.size()});
  copy_from_host(x, std::span<const T>(values));
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(values.size());
  std::vector<std::int64_t> all(kernels::exact_sum_words);
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const std::size_t piece = backwards ? cuts.size() - 2 - k : k;
    Tensor<std::int64_t, Exec> words(device, {kernels::exact_sum_words});
    copy_from_host(words, std::vector<std::int64_t>(kernels::exact_sum_words));
    kernels::exact_squared_norm(device, cuts[piece + 1] - cuts[piece], cuts[piece], x.data() + cuts[piece], words.data());
    auto host = copy_to_host(words);
    kernels::carry(host);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += host[i];
  }
  return kernels::exact_value(all);
}

}  // namespace

TEST_CASE_TEMPLATE("the same bits for every cut, close to the sum in long double", T, float, double) {
  for (const std::size_t n : {1, 31, 32, 33, 1000, 16384, 40000}) {
    std::vector<T> values(n);
    long double expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = T(Philox::normal(key_of(n), i) * std::pow(10.0, double(i % 17) - 8));
      expected += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
    }
    const double whole = sum_of(values, {});
    CHECK(whole == doctest::Approx(double(expected)).epsilon(sizeof(T) == 4 ? 1e-6 : 1e-14));
    for (const std::size_t cut : {32, 64, 992, 16384 - 32})
      if (cut < n) {
        CHECK(sum_of(values, {cut}) == whole);
        CHECK(sum_of(values, {cut}, true) == whole);
      }
    if (n == 40000) CHECK(sum_of(values, {32, 96, 4096, 16352, 16384, 39968}, true) == whole);
  }
}

TEST_CASE("numbers of every size, and none") {
  CHECK(sum_of<double>({}, {}) == 0);
  CHECK(sum_of<double>({3.0, 4.0}, {}) == 25);
  for (const double x : {0.0, 1e-160, 3e-154, 1e-20, 1.0, 1e20, 1e150, 1.3e154}) CHECK(sum_of<double>({x}, {}) == x * x);
  std::vector<double> wide(64);  // 2^-1000 is not lost next to 2^1000
  wide[0] = std::ldexp(1.0, 500);
  wide[32] = std::ldexp(1.0, -500);
  CHECK(sum_of(wide, {}) == std::ldexp(1.0, 1000));
  wide[0] = 0;
  CHECK(sum_of(wide, {}) == std::ldexp(1.0, -1000));
  CHECK(std::isnan(sum_of<float>({1.0f, std::numeric_limits<float>::quiet_NaN()}, {})));
  CHECK(std::isnan(sum_of<float>({1.0f, -std::numeric_limits<float>::infinity()}, {})));
  CHECK(std::isnan(sum_of<double>({1e200}, {})));  // its square overflows
}
