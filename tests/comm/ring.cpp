// SPDX-License-Identifier: Apache-2.0
// Ring exchanges: which rank's piece each step has, and the order in which a sum is formed.
#include <weft/comm/ring.hpp>

#include <chrono>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <weft/comm/threads.hpp>

using namespace weft;

TEST_CASE("at step s a rank has the piece of the rank s places before it") {
  for (const int ranks : {1, 2, 3, 4})
    comm::run_threads(
        ranks,
        [&](const Communicator& c) {
          std::vector<int> piece(5, c.rank()), spare(5);
          int steps = 0;
          comm::ring_exchange(c, std::span(piece), std::span(spare), [&](int step, std::span<int> at, auto&& progress) {
            progress();
            CHECK(step == steps++);
            for (const int element : at) CHECK(element == (c.rank() + ranks - step) % ranks);
          });
          CHECK(steps == ranks);
        },
        std::chrono::seconds(60));
}

TEST_CASE("the sum of a piece begins with its own rank and returns to it") {
  for (const int ranks : {1, 2, 3, 4})
    comm::run_threads(
        ranks,
        [&](const Communicator& c) {
          std::vector<int> piece(1, c.rank()), spare(1);
          std::vector<double> sum(1, -1), arriving(1, -1);
          const std::span<double> own = comm::ring_exchange(
              c, std::span(piece), std::span(spare), std::span(sum), std::span(arriving),
              [](int, std::span<int>, auto&& progress) { progress(); },
              // Not commutative, so that the order shows.
              [&](int step, std::span<double> part) { part[0] = (step == 0 ? 0 : part[0] * 10) + c.rank() + 1; });
          double expected = 0;
          for (int k = 0; k < ranks; ++k) expected = expected * 10 + (c.rank() + k) % ranks + 1;
          CHECK(own[0] == expected);
        },
        std::chrono::seconds(60));
}
