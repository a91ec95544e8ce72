// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared helpers of the kernels' tests: arrays of random numbers, comparison with a reference in double, finite differences.

#include <doctest/doctest.h>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>

namespace kernels_test {

using weft::accumulate_t;
using weft::bfloat16;
using weft::DefaultDevice;
using weft::float16;

/// The allowed difference of a result of type T from the reference in double, relative to the largest value of the reference.
template <class T>
constexpr double tolerance = std::is_same_v<T, double>    ? 1e-12
                             : std::is_same_v<T, float>   ? 3e-6
                             : std::is_same_v<T, float16> ? 2e-3
                                                          : 1.2e-2;

template <class T>
T to(double x) {
  return T(accumulate_t<T>(x));
}

/// Standard normal numbers, rounded to T.
template <class T>
std::vector<T> normal(std::size_t n, unsigned seed, double deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution(0, deviation);
  std::vector<T> x(n);
  for (auto& value : x) value = to<T>(distribution(generator));
  return x;
}

template <class T>
std::vector<double> widen(const std::vector<T>& x) {
  return std::vector<double>(x.begin(), x.end());
}

/// The largest difference, relative to the largest reference value (or 1 if all are smaller); NaN counts as infinite.
template <class T>
double difference(const std::vector<T>& result, const std::vector<double>& reference) {
  REQUIRE(result.size() == reference.size());
  double worst = 0, scale = 1;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double d = std::abs(double(result[i]) - reference[i]);
    worst = d >= 0 ? std::max(worst, d) : INFINITY;
    scale = std::max(scale, std::abs(reference[i]));
  }
  return worst / scale;
}

template <class T>
void check_close(const std::vector<T>& result, const std::vector<double>& reference, double factor = 1) {
  CHECK(difference(result, reference) <= factor * tolerance<T>);
}

/// `gradient` against central differences of `f` at x, in double.
inline void check_gradient(std::vector<double> x, const std::vector<double>& gradient,
                           const std::function<double(const std::vector<double>&)>& f) {
  REQUIRE(x.size() == gradient.size());
  double scale = 1;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double here = x[i], h = 1e-5;
    x[i] = here + h;
    const double above = f(x);
    x[i] = here - h;
    const double below = f(x);
    x[i] = here;
    CHECK(std::abs((above - below) / (2 * h) - gradient[i]) <= 1e-7 * scale);
  }
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// A device of one thread, and the default one with all threads, which divides every loop.
struct Devices {
  Devices() { all.share_short_loops(); }
  DefaultDevice all;
  DefaultDevice one{Kokkos::Experimental::partition_space(Kokkos::DefaultExecutionSpace(), 1, 1)[0]};
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace kernels_test
