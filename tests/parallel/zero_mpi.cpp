// SPDX-License-Identifier: Apache-2.0
// Over MPI processes FullyShardedDataParallel gives one rank's results in every layout of (dp, tp, pp), and sequence
// parallelism and a schedule with several chunks do beside it.

#include "support/parity.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

namespace {

using Model = nn::BasicGpt<double>;

template <class Composition>
void check_processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check_layouts<Composition, comm::Mpi>(static_cast<std::size_t>(size), gpt_config(), reference_of<Model>(gpt_config()), 1e-12);
}

}  // namespace

TEST_CASE("stage 1") { check_processes<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>, zero::Stage1>>(); }
TEST_CASE("stage 2") { check_processes<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>, zero::Stage2>>(); }
TEST_CASE("stage 3") { check_processes<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>, zero::Stage3>>(); }
TEST_CASE("stage 3, sequence parallel, ZBV") { check_processes<FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model, schedule::Zbv>>, zero::Stage3>>(); }
