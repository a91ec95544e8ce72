// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/stage_units.hpp weft/pipeline/stack_unit.hpp
// covers: weft/pipeline/stage_cut.hpp
// The cut of a stack into stages: by cost, contiguous, nowhere empty, and no cut with a cheaper worst stage exists.

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/pipeline/stack_unit.hpp>
#include <weft/pipeline/stage_cut.hpp>
#include <weft/pipeline/stage_units.hpp>

using namespace weft;

namespace {

using Stages = std::vector<std::size_t>;

double worst_of(const std::vector<double>& costs, const Stages& stage) {
  std::vector<double> sums(stage.back() + 1);
  for (std::size_t i = 0; i < costs.size(); ++i) sums[stage[i]] += costs[i];
  return *std::max_element(sums.begin(), sums.end());
}
// The least worst stage over all cuts, tried one by one.
double least_worst(const std::vector<double>& costs, std::size_t from, std::size_t stages) {
  double sum = 0, best = -1;
  for (std::size_t end = from + 1; end + stages - 1 <= costs.size(); ++end) {
    sum += costs[end - 1];
    if (stages == 1 && end != costs.size()) continue;
    const double worst = stages == 1 ? sum : std::max(sum, least_worst(costs, end, stages - 1));
    if (best < 0 || worst < best) best = worst;
  }
  return best;
}

}  // namespace

TEST_CASE("stages are cut by cost") {
  CHECK(detail::cut_by_cost(std::vector<double>{1, 4, 4, 1}, 2) == Stages{0, 0, 1, 1});
  CHECK(detail::cut_by_cost(std::vector<double>{8, 1, 1, 1, 1}, 2) == Stages{0, 1, 1, 1, 1});
  CHECK(detail::cut_by_cost(std::vector<double>{1, 1, 1, 9}, 3) == Stages{0, 0, 1, 2});
  CHECK(detail::cut_by_cost(std::vector<double>{5}, 1) == Stages{0});
  CHECK_THROWS_WITH_AS(detail::cut_by_cost(std::vector<double>{1, 1}, 3),
                       "weft: units(2) < stages(3): every stage of a pipeline holds at least one unit of the stack", LayoutError);
}
TEST_CASE("no cut has a cheaper worst stage") {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const std::size_t units = 1 + key_of(trial, 1) % 9, stages = 1 + key_of(trial, 2) % units;
    std::vector<double> costs;
    for (std::size_t i = 0; i < units; ++i) costs.push_back(double(1 + key_of(trial, 3, i) % 20));
    const Stages stage = detail::cut_by_cost(costs, stages);
    REQUIRE(stage.size() == units);
    CHECK(stage.front() == 0);
    CHECK(stage.back() == stages - 1);
    for (std::size_t i = 1; i < units; ++i) CHECK((stage[i] == stage[i - 1] || stage[i] == stage[i - 1] + 1));
    CHECK(worst_of(costs, stage) == least_worst(costs, 0, stages));
  }
}
TEST_CASE("stages are cut by given numbers of units") {
  CHECK(detail::cut_by_count(Stages{3, 3}) == Stages{0, 0, 0, 1, 1, 1});
  CHECK(detail::cut_by_count(Stages{2, 3}) == Stages{0, 0, 1, 1, 1});
  CHECK(detail::cut_by_count(Stages{7}) == Stages(7, 0));
}
