// SPDX-License-Identifier: Apache-2.0
// covers: weft/generation/sampling.hpp
// Temperature, top-k and top-p against a plain oracle that sorts everything: which tokens stay, and how often each is drawn.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <weft/generation/sampling.hpp>

using namespace weft;

namespace {

// The probability of every token, by definition.
std::vector<double> oracle(const std::vector<double>& logits, double temperature, std::size_t top_k, double top_p) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto softmax = [&](std::size_t count) {
    std::vector<double> p(n, 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += p[order[i]] = std::exp((logits[order[i]] - logits[order[0]]) / temperature);
    for (double& one : p) one /= sum;
    return p;
  };
  std::size_t count = top_k == 0 ? n : std::min(top_k, n);
  const std::vector<double> p = softmax(count);
  std::size_t kept = 0;
  for (double before = 0; kept < count && (kept == 0 || before < top_p); before += p[order[kept++]]) {}
  return softmax(top_p >= 1 ? count : kept);
}

double chi_square(const std::vector<double>& logits, const Sampling& sampling, const std::vector<double>& p, std::size_t draws,
                  std::size_t& degrees) {
  std::vector<double> seen(logits.size());
  for (std::size_t i = 0; i < draws; ++i) ++seen[std::size_t(sample_token(logits, sampling, i % 7, i / 7))];
  double sum = 0, rest_seen = 0, rest_expected = 0;
  degrees = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * double(draws);
    if (expected == 0) {
      CHECK(seen[i] == 0);
    } else if (expected < 8) {
      rest_seen += seen[i], rest_expected += expected;
    } else {
      sum += (seen[i] - expected) * (seen[i] - expected) / expected;
      ++degrees;
    }
  }
  if (rest_expected >= 8) sum += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected, ++degrees;
  if (degrees > 0) --degrees;
  return sum;
}
// Chance exceeds it less than once in ten thousand times.
double limit(std::size_t degrees) { return double(degrees) + 4 * std::sqrt(2.0 * double(degrees)) + 8; }

std::vector<double> some_logits(std::size_t count, std::uint64_t seed, bool ties) {
  std::vector<double> logits(count);
  for (std::size_t i = 0; i < count; ++i) {
    logits[i] = 2 * Philox::normal(seed, i);
    if (ties) logits[i] = std::round(logits[i]);
  }
  return logits;
}

}  // namespace

TEST_CASE("the tokens that stay, and their probabilities, are the oracle's") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const std::size_t count : {1, 2, 17, 200})
      for (const double temperature : {0.3, 1.0, 2.5})
        for (const std::size_t top_k : {0, 1, 5, 500})
          for (const double top_p : {1e-9, 0.3, 0.9, 1.0}) {
            const auto logits = some_logits(count, seed, seed % 2 == 1);
            const auto expected = oracle(logits, temperature, top_k, top_p);
            std::vector<double> p(count, 0.0);
            double sum = 0;
            for (const auto& one : detail::candidates_of(logits, {.temperature = temperature, .top_k = top_k, .top_p = top_p}))
              sum += p[std::size_t(one.token)] = one.weight;
            double largest = 0;
            for (std::size_t i = 0; i < count; ++i) {
              largest = std::max(largest, std::abs(p[i] / sum - expected[i]));
              CHECK((p[i] > 0) == (expected[i] > 0));
            }
            CHECK(largest <= 1e-12);
            ++compared;
          }
  CHECK(compared == 20 * 4 * 3 * 4 * 4);
}

TEST_CASE("tokens are drawn as often as they are probable") {
  const auto logits = some_logits(40, 3, false);
  std::size_t degrees = 0;
  for (const Sampling& sampling : {Sampling{.temperature = 1}, Sampling{.temperature = 0.6, .top_k = 12, .seed = 2},
                                   Sampling{.temperature = 1.4, .top_p = 0.8, .seed = 3},
                                   Sampling{.temperature = 0.9, .top_k = 20, .top_p = 0.9, .seed = 4}}) {
    const auto expected = oracle(logits, sampling.temperature, sampling.top_k, sampling.top_p);
    const double found = chi_square(logits, sampling, expected, 40000, degrees);
    CHECK(degrees >= 5);
    CHECK(found <= limit(degrees));
  }
  // The test can fail: a temperature that is 5 % off, and a top-k without one of its tokens.
  const double off = chi_square(logits, {.temperature = 1.05}, oracle(logits, 1, 0, 1), 40000, degrees);
  CHECK(off > limit(degrees));
}

TEST_CASE("greedy is the first of the largest, and numbers depend on seed, sequence and position alone") {
  CHECK(sample_token(std::vector<double>{1, 3, 3, 2}, {}, 0, 0) == 1);
  const auto logits = some_logits(1000, 5, false);
  const Sampling hot{.temperature = 50, .seed = 6};
  CHECK(sample_token(logits, hot, 1, 2) == sample_token(logits, hot, 1, 2));
  std::size_t differ = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    differ += sample_token(logits, hot, 1, i) != sample_token(logits, hot, 2, i);
    differ += sample_token(logits, hot, 1, i) != sample_token(logits, hot, 1, i + 20);
    differ += sample_token(logits, hot, 1, i) != sample_token(logits, {.temperature = 50, .seed = 7}, 1, i);
  }
  CHECK(differ >= 55);
  // Weights below the smallest number: never drawn.
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(sample_token(std::vector<double>{-1e6, 0, -1e6}, {.temperature = 1}, 0, i) == 1);
  const double none = -std::numeric_limits<double>::infinity();
  CHECK(sample_token(std::vector<double>{none, 0, none}, {.temperature = 1, .top_k = 2}, 0, 0) == 1);
}

TEST_CASE("invalid options of sampling are refused") {
  CHECK_THROWS_AS(Sampling{.temperature = -1}.check(), UsageError);
  CHECK_THROWS_AS(Sampling{.top_p = 0}.check(), UsageError);
  CHECK_THROWS_AS(Sampling{.top_p = 1.5}.check(), UsageError);
  CHECK_THROWS_AS(Sampling{.temperature = std::nan("")}.check(), UsageError);
  CHECK_THROWS_AS(sample_token(std::vector<double>{0, std::nan("")}, {}, 0, 0), UsageError);
}
