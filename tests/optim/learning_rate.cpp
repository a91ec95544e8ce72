// SPDX-License-Identifier: Apache-2.0
// The learning rate at its corners.

#include <doctest/doctest.h>

#include <weft/optim/learning_rate.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

TEST_CASE("polynomial decay, one cycle and plateau have PyTorch 2.11's numbers; the inverse square root") {
  using namespace weft::optim;
  const WarmupPolynomial square{.peak = 0.5, .power = 2, .steps = 10};
  const double falls[] = {0.405, 0.32, 0.245, 0.18, 0.125, 0.08, 0.045, 0.02, 0.005, 0.0};  // PolynomialLR from its second step
  for (std::uint64_t step = 0; step < 10; ++step) CHECK(std::abs(square.at(step) - falls[step]) < 1e-15);
  const WarmupPolynomial linear{.peak = 1.0, .minimum = 0.2, .warmup = 4, .steps = 12};
  CHECK(linear.at(0) == 0.25);
  CHECK(linear.at(3) == 1.0);
  CHECK(linear.at(7) == doctest::Approx(0.6).epsilon(1e-15));
  CHECK(linear.at(11) == 0.2);
  const OneCycle cycle{.peak = 0.5, .steps = 20};
  const std::pair<std::uint64_t, double> places[] = {{0, 0.020000000000000018},
                                                     {3, 0.3341640786499874},
                                                     {5, 0.5},
                                                     {6, 0.49373200311754367},
                                                     {12, 0.250001},
                                                     {18, 0.006269996882456277},
                                                     {19, 2e-06},
                                                     {100, 2e-06}};
  for (const auto& [step, rate] : places) CHECK(std::abs(cycle.at(step) - rate) < 1e-15);
  CHECK(OneCycle{.peak = 0.5, .rise = 0.1, .steps = 10}.at(0) == 0.5);  // a rise of one step
  const WarmupInverseSquareRoot root{.peak = 1.0, .warmup = 16};
  CHECK(root.at(3) == 0.25);
  CHECK(root.at(15) == 1.0);
  CHECK(root.at(63) == 0.5);
  // ReduceLROnPlateau(factor=0.5, patience=2, cooldown=1, min_lr=0.1) after each of these losses.
  const std::vector<double> losses = {1,   0.9, 0.95, 0.94, 0.93, 0.92, 0.89995, 0.5, 0.6, 0.6,
                                      0.6, 0.6, 0.6,  0.6,  0.6,  0.6,  0.6,     0.6, 0.6};
  const double factors[] = {1.0,  1.0,  1.0,  1.0,  0.5,   0.5,   0.5,   0.5,   0.5, 0.5,
                            0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.1};
  const Plateau plateau{.factor = 0.5, .patience = 2, .cooldown = 1, .minimum = 0.1};
  for (std::size_t i = 0; i < losses.size(); ++i) CHECK(plateau.at(std::span(losses).first(i + 1)) == factors[i]);
  CHECK(plateau.at({}) == 1);
}

TEST_CASE("schedules with options that mean nothing are refused") {
  using namespace weft::optim;
  CHECK_THROWS_WITH_AS((void)WarmupInverseSquareRoot{.warmup = 0}.at(0), doctest::Contains("needs a warm-up"), weft::UsageError);
  for (const OneCycle& wrong : {OneCycle{.start = 0}, OneCycle{.end = std::nan("")}, OneCycle{.rise = 1}, OneCycle{.steps = 1}})
    CHECK_THROWS_AS((void)wrong.at(0), weft::UsageError);
  CHECK_THROWS_AS((void)WarmupPolynomial{.power = -1}.at(0), weft::UsageError);
  CHECK_THROWS_AS((void)Plateau{.factor = 1}.at({}), weft::UsageError);
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
