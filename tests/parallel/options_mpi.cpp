// SPDX-License-Identifier: Apache-2.0
// Options of a model between MPI processes: stages that differ, sums in pieces, gradients summed as integers.

#include "support/process_options.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

namespace {

std::size_t processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::size_t(size);
}

}  // namespace

TEST_CASE("every schedule with stages that differ is one rank") { check_uneven_processes<comm::Mpi>(processes()); }
TEST_CASE("pieces of sums give the bits of whole sums") { check_piece_processes<comm::Mpi>(processes()); }
TEST_CASE("sums as integers have the bits of thread ranks") { check_quantised_processes<comm::Mpi>(processes()); }
