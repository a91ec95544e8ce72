// SPDX-License-Identifier: Apache-2.0
// Over MPI processes a mixture of experts gives the results of one rank, folded over tp and combined with ZeRO.

#include "support/experts.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicMixtral<double>;
using Composition = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>, zero::Stage3>;

}  // namespace

TEST_CASE("experts over processes") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto world = static_cast<std::size_t>(size);
  const Reference reference = reference_of<Model>(mixtral_config());
  check_folded<Composition, comm::Mpi>(mixtral_config(), reference, {world, {.ep = world}, 1}, 1e-12);
  if (world < 4) return;
  check_folded<Composition, comm::Mpi>(mixtral_config(), reference, {world, {.tp = 2, .ep = 2, .etp = 2}, 1}, 1e-12);
  check_folded<Composition, comm::Mpi>(mixtral_config(), reference, {world, {.tp = 2, .ep = 2, .pp = 2}, 1}, 1e-12);
}
