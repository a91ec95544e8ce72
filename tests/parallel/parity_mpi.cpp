// SPDX-License-Identifier: Apache-2.0
// Over MPI processes every layout of (dp, tp, pp) gives the loss, gradient norm, every gradient, validation loss and logits of
// one rank. Each process computes the one-rank reference itself. MPI and Kokkos are initialised before `run`, which must leave
// both unchanged, repeatedly.

#include "support/parity.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

namespace {

template <class Model>
using Inner = TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>;

template <class Composition>
void check_processes(const typename Composition::Config& config, double tolerance) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check_layouts<Composition, comm::Mpi>(static_cast<std::size_t>(size), config,
                                        reference_of<typename Composition::model_type>(config), tolerance);
}

}  // namespace

TEST_CASE("gpt in double") { check_processes<DataParallel<Inner<models::BasicGpt<double>>>>(gpt_config(), 1e-12); }
TEST_CASE("llama in double") { check_processes<DataParallel<Inner<models::BasicLlama<double>>>>(llama_config(), 1e-12); }
TEST_CASE("gpt in float, nothing kept twice") {
  check_processes<FullyShardedDataParallel<Inner<models::Gpt>, zero::Stage3>>(gpt_config(), 1e-5);
}
