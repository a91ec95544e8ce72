// SPDX-License-Identifier: Apache-2.0
// covers: weft/plan/memory.hpp
// ZeRO's formulas give the numbers in the ZeRO paper.

#include <doctest/doctest.h>

#include <weft/plan/memory.hpp>

using namespace weft;

TEST_CASE("ZeRO's own example: 7.5e9 parameters on 64 ranks") {
  const double gigabytes[] = {120, 31.4, 16.6, 1.88};
  for (int stage = 0; stage < 4; ++stage)
    CHECK(plan::zero_memory(7.5e9, 64, stage).total() / 1e9 == doctest::Approx(gigabytes[stage]).epsilon(0.003));
}
