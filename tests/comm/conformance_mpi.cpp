// SPDX-License-Identifier: Apache-2.0
// Every operation on every type between MPI processes, with and without fingerprints.
#include <weft/comm/mpi.hpp>

#include <doctest/doctest.h>

#include "comm/conformance.hpp"

TEST_CASE("MPI: every operation, type and count") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(100));
  CHECK_NOTHROW(weft_test::check_everything(c));
}

TEST_CASE("MPI with fingerprints: nothing changes while ranks agree") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(100), true);
  CHECK_NOTHROW(weft_test::check_briefly(c));
}

TEST_CASE("MPI with fingerprints: ranks that disagree are named") {
  const auto world = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(100), true);
  if (world.size() < 2) return;
  for (int pair = 0; pair < 3; ++pair) {
    const auto c = world.split(0, 0, "pair");
    std::vector<float> x(4 + (pair == 0 && c.rank() == 1), 1.0f);
    const auto call = [&] {
      if (pair == 1 && c.rank() == 1) return c.broadcast(x, 0);
      c.all_reduce(x, pair == 2 && c.rank() == 1 ? weft::Reduction::max : weft::Reduction::sum);
    };
    CHECK_THROWS_AS(call(), weft::MismatchError);
    CHECK(x == std::vector<float>(x.size(), 1.0f));
  }
}

TEST_CASE("MPI: a wait ends at its deadline") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::milliseconds(200));
  if (c.size() < 2) return;
  std::vector<float> x(4, 1.0f);
  if (c.rank() == 0) CHECK_THROWS_AS(c.recv(x, 1), weft::TimeoutError);
  MPI_Barrier(MPI_COMM_WORLD);
  if (c.rank() == 1) c.send(x, 0);  // what the first rank gave up on still arrives
  MPI_Barrier(MPI_COMM_WORLD);
}
