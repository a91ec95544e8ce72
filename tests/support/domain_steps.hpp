// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of a model whose fields domain axes cut, compared with one rank: uneven pieces, and the largest difference of losses and
// gradients.
//
//   const UnevenPiece x(rows, mesh.size(dx{}), mesh.rank(dx{}));
//   CHECK(domain_difference(steps, steps_of_one_rank) < 1e-13);

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/testing/numbers.hpp>

namespace weft_test {

/// The rows or nodes of a rank: the first one has what the others leave.
struct UnevenPiece {
  UnevenPiece(std::size_t whole, std::size_t ranks, std::size_t rank)
      : first(rank == 0 ? 0 : whole - whole / ranks * (ranks - rank)),
        count(rank == 0 ? whole - whole / ranks * (ranks - 1) : whole / ranks) {}
  std::size_t end() const { return first + count; }
  std::size_t first, count;
};

struct DomainSteps {
  std::vector<double> losses;  ///< and other numbers that all ranks have
  std::vector<std::string> names;
  std::vector<std::vector<double>> gradients;  ///< of each step and parameter
};
/// The largest difference of a loss or a gradient, by the largest value of its kind in b.
inline double domain_difference(const DomainSteps& a, const DomainSteps& b) {
  namespace numbers = weft::testing::detail;
  REQUIRE(a.names == b.names);
  REQUIRE(a.losses.size() == b.losses.size());
  REQUIRE(a.gradients.size() == b.gradients.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) worst = std::max(worst, numbers::distance({a.losses[i]}, {b.losses[i]}));
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    REQUIRE(numbers::largest(b.gradients[i]) > 1e-6);
    worst = std::max(worst, numbers::distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

}  // namespace weft_test
