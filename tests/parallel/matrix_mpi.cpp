// SPDX-License-Identifier: Apache-2.0
// Twelve layouts of the matrix between MPI processes, two of them on two and ten on four.

#include "support/matrix.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("the matrix over processes") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto here = [&](const MatrixEntry& entry) { return entry.over_processes && entry.world == std::size_t(size); };
  const std::size_t dense = check_matrix<DenseRing, DenseMesh, comm::Mpi>(dense_ring, gpt_config(), here);
  const std::size_t mixture = check_matrix<SequenceExperts, ExpertMesh, comm::Mpi>(sequence_experts, mixtral_config(), here);
  CHECK(dense + mixture == (size == 2 ? 2 : 10));
}
