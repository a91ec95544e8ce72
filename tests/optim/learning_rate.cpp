// SPDX-License-Identifier: Apache-2.0
// The learning rate at its corners.

#include <doctest/doctest.h>

#include <weft/optim/learning_rate.hpp>

#include <cmath>
#include <string>

using weft::optim::WarmupCosine;

TEST_CASE("warm-up, cosine, minimum") {
  const WarmupCosine rate{.peak = 1.0, .minimum = 0.1, .warmup = 10, .steps = 110};
  CHECK(rate.at(0) == doctest::Approx(0.1));
  CHECK(rate.at(4) == doctest::Approx(0.5));
  CHECK(rate.at(9) == doctest::Approx(1.0));
  CHECK(rate.at(59) == doctest::Approx(0.55));  // half way down
  CHECK(rate.at(109) == 0.1);
  CHECK(rate.at(1'000'000) == 0.1);
  for (std::uint64_t step = 10; step < 110; ++step) CHECK(rate.at(step) < rate.at(step - 1));
}

TEST_CASE("no warm-up, only warm-up, one step") {
  CHECK(WarmupCosine{.peak = 2.0, .minimum = 0.5, .warmup = 0, .steps = 4}.at(1) == doctest::Approx(1.25));
  CHECK(WarmupCosine{.peak = 2.0, .minimum = 0.5, .warmup = 8, .steps = 4}.at(3) == doctest::Approx(1.0));
  CHECK(WarmupCosine{.peak = 2.0, .minimum = 0.5, .warmup = 0, .steps = 1}.at(0) == 0.5);
}

TEST_CASE("warm-up, plateau, decay") {
  const weft::optim::WarmupStableDecay rate{.peak = 1.0, .minimum = 0.1, .warmup = 10, .decay = 20, .steps = 100};
  CHECK(rate.at(0) == doctest::Approx(0.1));
  CHECK(rate.at(9) == 1.0);
  CHECK(rate.at(50) == 1.0);
  CHECK(rate.at(79) == 1.0);
  CHECK(rate.at(80) < 1.0);
  CHECK(rate.at(89) == doctest::Approx(0.55));  // half way down
  CHECK(rate.at(99) == 0.1);
  CHECK(rate.at(1'000'000) == 0.1);
  for (std::uint64_t step = 80; step < 100; ++step) CHECK(rate.at(step) < rate.at(step - 1));
  CHECK(weft::optim::WarmupStableDecay{.peak = 2.0, .minimum = 0.5, .steps = 4}.at(3) == 2.0);             // no decay
  CHECK(weft::optim::WarmupStableDecay{.peak = 2.0, .minimum = 0.5, .decay = 8, .steps = 4}.at(0) < 2.0);  // only decay
  CHECK(weft::optim::WarmupStableDecay{.peak = 2.0, .minimum = 0.5, .decay = 1, .steps = 4}.at(3) == 0.5);
}

TEST_CASE("a rate chosen when the program runs, or a function of one's own") {
  weft::optim::LearningRate rate = WarmupCosine{.peak = 1.0, .minimum = 0.1, .warmup = 10, .steps = 110};
  CHECK(rate.at(4) == doctest::Approx(0.5));
  rate = [](std::uint64_t step) { return 1.0 / double(step + 1); };
  CHECK(rate.at(3) == 0.25);
  const weft::optim::LearningRate copy = rate;
  CHECK(copy.at(1) == 0.5);
}

TEST_CASE("rates that are no numbers of at least 0 are refused, with their names") {
  using namespace weft::optim;
  for (const double wrong : {std::nan(""), double(INFINITY), -1.0}) {
    INFO(wrong);
    CHECK_THROWS_WITH_AS((void)WarmupCosine{.peak = wrong}.at(0), doctest::Contains("weft: peak learning rate "),
                         weft::UsageError);
    CHECK_THROWS_WITH_AS((void)WarmupCosine{.minimum = wrong}.at(0), doctest::Contains("weft: minimum learning rate "),
                         weft::UsageError);
    CHECK_THROWS_AS((void)WarmupStableDecay{.peak = wrong}.at(0), weft::UsageError);
    CHECK_THROWS_AS((void)WarmupStableDecay{.minimum = wrong}.at(0), weft::UsageError);
    const LearningRate rate = [=](std::uint64_t step) { return step == 7 ? wrong : 1e-3; };
    CHECK(rate.at(6) == 1e-3);
    CHECK_THROWS_WITH_AS((void)rate.at(7), doctest::Contains("weft: learning rate of step 7 "), weft::UsageError);
  }
}
