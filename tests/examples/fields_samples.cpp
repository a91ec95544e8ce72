// SPDX-License-Identifier: Apache-2.0
// The waves from which examples/fields makes its samples solve u_t + c ∇u = κ Δu, by finite differences, and a sample's numbers
// are a function of seed, purpose and index.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "examples/fields/samples.hpp"

using namespace fields;

namespace {

template <int Dims>
void check_waves(std::uint64_t sample) {
  Numbers numbers(3, "waves", sample);
  const Waves<Dims> waves(numbers);
  typename Waves<Dims>::Place place{};
  for (double& x : place) x = numbers.uniform(0, 1);
  const double time = 0.1, h = 1e-4, here = waves.at(place, time);
  double right = 0, transport = 0;
  for (std::size_t dim = 0; dim < Dims; ++dim) {
    auto before = place, after = place;
    before[dim] -= h, after[dim] += h;
    const double low = waves.at(before, time), high = waves.at(after, time);
    right += Waves<Dims>::diffusivity * (high - 2 * here + low) / (h * h);
    transport += std::abs(waves.velocity()[dim]);
    right -= waves.velocity()[dim] * (high - low) / (2 * h);
  }
  const double left = (waves.at(place, time + h) - waves.at(place, time - h)) / (2 * h);
  CHECK(transport > 0);
  CHECK(std::abs(left - right) < 1e-4 * (1 + std::abs(left)));
}

}  // namespace

TEST_CASE("waves solve the equation of advection and diffusion, and repeat over the borders") {
  for (std::uint64_t sample = 0; sample < 8; ++sample) check_waves<2>(sample), check_waves<3>(sample);
  Numbers numbers(3, "waves", 1);
  const Waves<2> waves(numbers);
  CHECK(std::abs(waves.at({0.3, 0.7}, 0.2) - waves.at({1.3, -0.3}, 0.2)) < 1e-12);
  CHECK(std::abs(waves.at({0.3, 0.7}, 0.2) - waves.at({0.4, 0.7}, 0.2)) > 1e-3);
}
TEST_CASE("numbers of a sample depend on seed, purpose and index") {
  const auto first = [](std::uint64_t seed, const char* purpose, std::uint64_t sample) {
    return Numbers(seed, purpose, sample).uniform(0, 1);
  };
  CHECK(first(1, "a", 0) == first(1, "a", 0));
  CHECK(first(1, "a", 0) != first(2, "a", 0));
  CHECK(first(1, "a", 0) != first(1, "b", 0));
  CHECK(first(1, "a", 0) != first(1, "a", 1));
  Numbers numbers(1, "a", 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < 4000; ++i) {
    const double value = numbers.normal();
    sum += value, squares += value * value;
  }
  CHECK(std::abs(sum / 4000) < 0.1);
  CHECK(std::abs(squares / 4000 - 1) < 0.15);
}
