// SPDX-License-Identifier: Apache-2.0
// Halos wider than the pieces of MPI processes: their rows, and their moves' backwards.

#include <weft/comm/mpi.hpp>

#include "support/halos.hpp"

using namespace weft_test;

TEST_CASE("a halo wider than the pieces of processes") {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const auto pieces = [&](std::size_t ends) {  // of 2 rows, but the first and the last one
    std::vector<std::size_t> rows(std::size_t(processes), 2);
    rows.front() = rows.back() = ends;
    return rows;
  };
  brings<4, 3, Border::closed, comm::Mpi>(pieces(4));
  brings<2, 2, Border::periodic, comm::Mpi>(pieces(2));
  if (processes > 1) brings<4, 3, Border::periodic, comm::Mpi>(pieces(2));
  if (processes > 1) brings<5, 5, Border::periodic, comm::Mpi>(pieces(3));
}
