// SPDX-License-Identifier: Apache-2.0
// Over MPI processes FullyShardedDataParallel gives the results of one rank in every layout of (dp, tp, pp), also with sequence
// parallelism and with a schedule with several chunks.

#include "support/parity.hpp"

#include <weft/comm/mpi.hpp>
#include <weft/parallel/single_device.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;

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
// Compares the parameters that a process keeps after 20 steps, and the losses, with one rank's, bit by bit.
TEST_CASE("a reproducible run has the bits of one rank, with copies of the shards too") {
  using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>, zero::Stage3>;
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto train = [](auto& model, std::size_t rank, std::size_t ranks, std::vector<double>& losses) {
    optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
    for (int step = 0; step < 20; ++step) {
      losses.push_back(model.train_step(make_batch(std::uint64_t(step), rank, ranks, batch_sequences / ranks)));
      losses.push_back(optimizer.step().gradient_norm);
    }
  };
  std::vector<double> expected;
  std::map<std::string, std::vector<double>> weights;
  DefaultDevice device;
  SingleDevice<Model> alone(device, gpt_config(), {.numerics = {.reproducible = true}});
  train(alone, 0, 1, expected);
  alone.for_each_state([&](ParameterState& state) {
    weights[state.name()].assign(static_cast<double*>(state.value().get()),
                                 static_cast<double*>(state.value().get()) + state.size());
  });
  for (const std::size_t replicate : {1, 2}) {
    if (std::size_t(size) % replicate != 0) continue;
    const int code = runtime::run<comm::Mpi>(runtime::RunOptions{}, [&](World& world) {
      Mesh<dp, tp, pp> mesh(world, Degrees{});
      Composition model(mesh, gpt_config(), {.shard = {.replicate = replicate}, .numerics = {.reproducible = true}});
      std::vector<double> losses;
      train(model, std::size_t(world.rank()), std::size_t(world.size()), losses);
      CHECK(losses == expected);
      model.for_each_state([&](ParameterState& state) {
        for (const auto& run : state.runs())
          for (std::size_t i = 0; i < run.length; ++i)
            REQUIRE(static_cast<double*>(state.value().get())[run.local + i] == weights.at(state.name())[run.global + i]);
      });
    });
    CHECK(code == 0);
  }
}

TEST_CASE("stage 3, sequence parallel, ZBV") {
  check_processes<FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model, schedule::Zbv>>, zero::Stage3>>();
}
