// SPDX-License-Identifier: Apache-2.0
// The factor of losses goes down at once after a skipped step, up after enough good ones, and stays within its bounds.
#include <weft/engine/loss_scale.hpp>

#include <limits>
#include <string>

#include <doctest/doctest.h>

using weft::LossScale;

TEST_CASE("halved after a skipped step, doubled after an interval of good ones in a row") {
  LossScale scale({.initial = 1024, .interval = 3});
  for (int i = 0; i < 2; ++i) scale.update(false);
  CHECK(scale.value() == 1024);
  CHECK(scale.good_steps() == 2);
  scale.update(true);
  CHECK(scale.value() == 512);
  CHECK(scale.good_steps() == 0);
  for (int i = 0; i < 3; ++i) scale.update(false);
  CHECK(scale.value() == 1024);
  CHECK(scale.good_steps() == 0);
}

TEST_CASE("never outside of its bounds") {
  LossScale scale({.initial = 4, .interval = 1, .smallest = 2, .largest = 8});
  for (int i = 0; i < 5; ++i) scale.update(true);
  CHECK(scale.value() == 2);
  for (int i = 0; i < 5; ++i) scale.update(false);
  CHECK(scale.value() == 8);
}

TEST_CASE("a step's gradients have the factor with which it began") {
  LossScale scale({.initial = 16});
  scale.apply();
  scale.update(true);
  CHECK(scale.applied() == 16);
  CHECK(scale.value() == 8);
  scale.restore(4, 7);
  CHECK(scale.value() == 4);
  CHECK(scale.good_steps() == 7);
  for (const double wrong :
       {0.0, 0.5, -4.0, 1e30, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_WITH_AS(scale.restore(wrong, 0), doctest::Contains("weft: loss scale: the restored factor "), weft::UsageError);
  CHECK(scale.value() == 4);
}

TEST_CASE("numbers that cannot be are refused, all of them named") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const weft::LossScaleOptions& options : {weft::LossScaleOptions{.initial = 0},
                                                {.initial = infinity},
                                                {.initial = std::numeric_limits<double>::quiet_NaN()},
                                                {.growth = infinity},
                                                {.largest = infinity},
                                                {.growth = 0.5},
                                                {.backoff = 2},
                                                {.backoff = 0},
                                                {.interval = 0},
                                                {.initial = 1, .smallest = 2},
                                                {.initial = 8, .largest = 4}}) {
    std::string text;
    try {
      LossScale scale(options);
    } catch (const weft::UsageError& error) {
      text = error.what();
    }
    CHECK(text.starts_with("weft: loss scale: smallest("));
    CHECK(text.find("initial(" + std::to_string(options.initial)) != std::string::npos);
  }
}
