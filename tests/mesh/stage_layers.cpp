// SPDX-License-Identifier: Apache-2.0
// The layers of each stage: equal numbers, numbers by cost beside an oracle that tries every division, and wrong numbers.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/mesh/stage_layers.hpp>

using namespace weft;
using namespace weft::mesh_layout;
using Counts = std::vector<std::size_t>;

namespace {

// Ranks of a plain pipeline, of an interleaved one, and of a V.
Counts ranks_of(std::size_t ranks, std::size_t chunks, bool v) {
  Counts all;
  for (std::size_t stage = 0; stage < ranks * chunks; ++stage)
    all.push_back(v ? std::min(stage, ranks * chunks - 1 - stage) : stage % ranks);
  return all;
}

// The costs of the ranks, the largest first.
std::vector<double> rank_costs(const Counts& counts, const Counts& rank_of, const StageCosts& costs) {
  std::vector<double> all(1 + *std::max_element(rank_of.begin(), rank_of.end()));
  for (std::size_t stage = 0; stage < counts.size(); ++stage) all[rank_of[stage]] += costs.block * double(counts[stage]);
  all[rank_of.front()] += costs.front, all[rank_of.back()] += costs.back;
  std::sort(all.rbegin(), all.rend());
  return all;
}

// The least costs, over all divisions with a layer in every stage but the first and the last.
std::vector<double> least_costs(std::size_t layers, const Counts& rank_of, const StageCosts& costs) {
  std::vector<double> least{std::numeric_limits<double>::infinity()};
  Counts counts(rank_of.size());
  const std::function<void(std::size_t, std::size_t)> divide = [&](std::size_t stage, std::size_t left) {
    if (stage + 1 == counts.size()) {
      counts[stage] = left;
      least = std::min(least, rank_costs(counts, rank_of, costs));
      return;
    }
    for (counts[stage] = stage == 0 ? 0 : 1; counts[stage] <= left; ++counts[stage]) {
      const std::size_t here = counts[stage];
      divide(stage + 1, left - here);
      counts[stage] = here;
    }
  };
  divide(0, layers);
  return least;
}

std::string refusal(const Counts& counts, std::size_t layers, std::size_t stages, bool ends = true) {
  try {
    require_stage_layers(counts, layers, stages, ends);
    return "";
  } catch (const LayoutError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("equal numbers: stage s begins with layer layers * s / stages") {
  for (std::size_t layers = 1; layers <= 40; ++layers)
    for (std::size_t stages = 1; stages <= layers; ++stages) {
      const Counts counts = even_layers(layers, stages);
      std::size_t first = 0;
      for (std::size_t stage = 0; stage < stages; first += counts[stage++]) CHECK(first == layers * stage / stages);
      CHECK(first == layers);
      CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
    }
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  const Counts counts = even_layers(huge, 7);
  CHECK(std::accumulate(counts.begin(), counts.end(), std::size_t(0)) == huge);
}

TEST_CASE("numbers by cost: no division has less costly ranks") {
  for (const bool v : {false, true})
    for (std::size_t ranks = 1; ranks <= 4; ++ranks)
      for (std::size_t chunks = v ? 2 : 1; chunks <= (v || ranks > 2 ? 2u : 3u); ++chunks)
        for (std::uint64_t trial = 0; trial < 6; ++trial) {
          const Counts rank_of = ranks_of(ranks, chunks, v);
          const std::size_t layers = rank_of.size() + key_of(trial, 1, ranks) % 5;
          // Multiples of 1/8, whose sums are exact.
          const StageCosts costs{double(key_of(trial, 2, ranks) % 20) / 8, double(1 + key_of(trial, 3, chunks) % 16) / 8,
                                 double(key_of(trial, 4, ranks) % 60) / 8};
          const Counts counts = balanced_layers(layers, rank_of, costs);
          CHECK(refusal(counts, layers, rank_of.size()).empty());
          CHECK(rank_costs(counts, rank_of, costs) == least_costs(layers, rank_of, costs));
        }
  Counts llama_405b(16, 8);
  llama_405b.front() = llama_405b.back() = 7;
  CHECK(balanced_layers(126, ranks_of(16, 1, false), {1, 1, 1}) == llama_405b);
  // If ranks cost the same, later ones take more layers: they keep fewer micro-batches in flight.
  CHECK(balanced_layers(10, ranks_of(4, 1, false), {}) == Counts{2, 2, 3, 3});
  CHECK(balanced_layers(4, ranks_of(4, 1, false), {.front = 0, .block = 1, .back = 9}) == Counts{1, 1, 2, 0});
  CHECK_THROWS_AS(balanced_layers(1, ranks_of(4, 1, false), {}), LayoutError);
  CHECK_THROWS_AS(balanced_layers(4, ranks_of(2, 1, false), {0, 0, 1}), UsageError);
  CHECK_THROWS_AS(balanced_layers(4, ranks_of(2, 1, false), {-1, 1, 1}), UsageError);
  CHECK_THROWS_AS(balanced_layers(4, ranks_of(2, 1, false), {0, 1, std::numeric_limits<double>::infinity()}), UsageError);
}

TEST_CASE("numbers that do not divide the layers") {
  CHECK(refusal({7, 8, 8, 7}, 30, 4).empty());
  CHECK(refusal({0, 4, 4, 0}, 8, 4).empty());
  CHECK(refusal({4}, 4, 1).empty());
  CHECK(refusal({7, 8, 8}, 30, 4) ==
        "weft: layers of the stages (7, 8, 8): 3 numbers, but the pipeline has 4 stages (pp * stages per rank)");
  CHECK(refusal({7, 8, 8, 6}, 30, 4) ==
        "weft: layers of the stages (7, 8, 8, 6): their sum is 29, but the model has 30 layers: give numbers that sum to 30");
  CHECK(refusal({7, 8, 8, std::numeric_limits<std::size_t>::max()}, 30, 4).find("up to stage 3 they are more than") !=
        std::string::npos);
  CHECK(refusal({4, 0, 2, 2}, 8, 4) ==
        "weft: layers of the stages (4, 0, 2, 2): stage 1 holds no layer; only the first stage, which holds the embedding, and "
        "the last, which holds the head, can do without");
  CHECK(refusal({0, 4, 4, 0}, 8, 4, false) == "weft: units of the stages (0, 4, 4, 0): stage 0 holds no unit");
  CHECK(refusal(Counts(21, 1), 20, 20).find("1, 1, ...): 21 numbers") != std::string::npos);
}
