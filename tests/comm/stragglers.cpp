// SPDX-License-Identifier: Apache-2.0
// Slow ranks found in simulated times: 100 of 100 with one rank 20 % slower, none in 100 runs of each kind of noise.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <weft/comm/stragglers.hpp>

using namespace weft;

namespace {

// The noise of a rank's time of computing: deviations relative to the time.
struct Noise {
  const char* name;
  double each = 0;    // of each step and rank
  double common = 0;  // of a step, the same on all ranks: lengths of sequences
  double rank = 0;    // of a rank, for the whole run: chips differ
  double drift = 0;   // of a rank, correlated over about ten steps: temperature
  double bursts = 0;  // fraction of steps in which another program runs: two to five times as long
  double both = 0;    // fraction of steps in which it disturbs all ranks
};

constexpr Noise kinds[] = {
    {.name = "quiet", .each = 0.005},
    {.name = "a shared host", .each = 0.04},
    {.name = "steps of any length", .each = 0.03, .common = 0.4},
    {.name = "chips that differ", .each = 0.02, .rank = 0.015},
    {.name = "drift", .each = 0.02, .drift = 0.02},
    {.name = "bursts", .each = 0.02, .bursts = 0.05},
    {.name = "all of them", .each = 0.03, .common = 0.2, .rank = 0.01, .drift = 0.01, .bursts = 0.03, .both = 0.03},
};

class Times {
 public:
  Times(const Noise& noise, std::size_t ranks, std::uint64_t seed)
      : noise_(noise), random_(seed), rank_(ranks), drift_(ranks, 0) {
    for (double& one : rank_) one = noise.rank * normal_(random_);
  }
  // One step; rank `slow` computes `times` as long.
  std::vector<float> step(int slow, double times) {
    const auto burst = [&](double share) { return uniform_(random_) < share ? 2 + 3 * uniform_(random_) : 1.0; };
    const double common = std::exp(noise_.common * normal_(random_)) * burst(noise_.both);
    std::vector<float> seconds;
    for (std::size_t r = 0; r < rank_.size(); ++r) {
      drift_[r] = 0.9 * drift_[r] + std::sqrt(1 - 0.81) * noise_.drift * normal_(random_);
      const double own = std::exp(rank_[r] + drift_[r] + noise_.each * normal_(random_)) * burst(noise_.bursts);
      seconds.push_back(float(0.3 * common * own * (int(r) == slow ? times : 1)));
    }
    return seconds;
  }

 private:
  const Noise& noise_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  std::vector<double> rank_, drift_;
};

}  // namespace

TEST_CASE("a rank that computes 20 % slower is named within 20 steps, 100 of 100 times, and no other rank is") {
  for (const Noise& noise : kinds)
    for (const std::size_t ranks : {2, 4, 16})
      for (const int begin : {0, 40}) {
        CAPTURE(std::string(noise.name));
        CAPTURE(ranks);
        CAPTURE(begin);
        int named = 0, wrong = 0;
        for (std::uint64_t run = 0; run < 100; ++run) {
          Times times(noise, ranks, 1000 * ranks + run);
          comm::Stragglers stragglers;
          const int slow = int(run % ranks);
          bool found = false;
          for (int step = 0; step < begin + 20; ++step)
            for (const comm::Straggler& one :
                 stragglers.add(times.step(slow, step < begin ? 1 : 1.2), std::vector<std::uint32_t>(ranks, 0))) {
              found |= one.rank == slow;
              wrong += one.rank != slow || step < begin;
            }
          named += found;
        }
        CHECK(named == 100);
        CHECK(wrong == 0);
      }
}

TEST_CASE("noise names no rank in 100 runs of 300 steps") {
  for (const Noise& noise : kinds)
    for (const std::size_t ranks : {2, 8}) {
      CAPTURE(std::string(noise.name));
      CAPTURE(ranks);
      int wrong = 0;
      for (std::uint64_t run = 0; run < 100; ++run) {
        Times times(noise, ranks, 77000 + 1000 * ranks + run);
        comm::Stragglers stragglers;
        const std::vector<std::uint32_t> groups(ranks, 0);
        for (int step = 0; step < 300; ++step) wrong += int(stragglers.add(times.step(-1, 1), groups).size());
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("stages are not compared with each other, nor a rank that is alone in its stage") {
  comm::Stragglers stragglers;
  for (int step = 0; step < 60; ++step) {
    const float wobble = 1 + 0.01f * float(step % 3);
    const std::vector<float> seconds{0.2f * wobble, 0.2f, 0.5f, 0.5f * wobble, 3.0f};
    CHECK(stragglers.add(seconds, std::vector<std::uint32_t>{0, 0, 1, 1, 2}).empty());
  }
}

TEST_CASE("a slow rank is named once, and again after it was as fast as the others") {
  comm::Stragglers stragglers;
  const std::vector<std::uint32_t> groups(3, 0);
  int named = 0;
  for (int step = 0; step < 300; ++step) {
    const bool slow = step < 100 || step >= 200;
    for (const comm::Straggler& one : stragglers.add(std::vector<float>{0.2f, slow ? 0.25f : 0.2f, 0.2f}, groups)) {
      CHECK(one.rank == 1);
      CHECK(one.slower == doctest::Approx(0.25).epsilon(1e-3));
      CHECK(one.seconds == doctest::Approx(0.25));
      CHECK(one.others == 2);
      ++named;
    }
    CHECK(stragglers.slow().size() <= 1);
  }
  CHECK(named == 2);
}

TEST_CASE("short steps are taken together; steps without a time are not used") {
  comm::Stragglers stragglers;
  const std::vector<std::uint32_t> groups(2, 0);
  int first = 0;
  for (int step = 1; step <= 2000 && first == 0; ++step)  // of 1 ms: 100 of them are one observation
    if (!stragglers.add(std::vector<float>{1e-3f, step % 7 == 0 ? 0.0f : 1.3e-3f}, groups).empty()) first = step;
  CHECK(first > 1300);
}

TEST_CASE("ranks exchange a word each") {
  comm::Stragglers stragglers;
  CHECK(stragglers.add(std::vector<std::uint64_t>()).empty());
  bool found = false;
  for (int step = 0; step < 25; ++step)
    for (const comm::Straggler& one : stragglers.add(std::vector<std::uint64_t>{
             comm::Stragglers::word(0.5, 7), comm::Stragglers::word(0.8, 7), comm::Stragglers::word(9, 8)}))
      found |= one.rank == 1;
  CHECK(found);
}

TEST_CASE("the line names the rank, its machine, the numbers and where to look") {
  CHECK(
      comm::describe({.rank = 3, .slower = 0.214, .seconds = 0.0121, .others = 7}, "a7") ==
      "rank 3 (host a7) computes 21 % slower than the median of the 7 other ranks of its stage, 12.1 ms a step: look there for "
      "other programs, a low clock (temperature, power) and slow memory; or its work is more (longer sequences, busier experts)");
}
