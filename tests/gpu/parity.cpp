// SPDX-License-Identifier: Apache-2.0
// Ranks over NCCL give one rank's losses and gradient norms in every layout (./tests/run --gpu). Several ranks may share one GPU
// (WEFT_SHARE_GPUS=1): tests/support/torchrun starts them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/cudnn/use.hpp>
#include <weft/nn/gpt.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

#include "support/batches.hpp"
#include "support/degrees.hpp"

using namespace weft;

namespace {

using Gpt = nn::BasicGpt<double>;
const nn::GptConfig config{.vocabulary = weft_test::batch_vocabulary, .layers = 4, .width = 32, .heads = 4, .sequence = weft_test::batch_length};

// Losses and norms of a few steps, one after the other.
template <class Model>
std::vector<double> numbers_of(Model& model, std::size_t data_rank, std::size_t data_ranks, std::size_t micro_batches) {
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::vector<double> numbers;
  for (std::uint64_t step = 0; step < 3; ++step) {
    numbers.push_back(model.train_step(weft_test::make_batch(step, data_rank, data_ranks, micro_batches)));
    numbers.push_back(optimizer.step().gradient_norm);
  }
  return numbers;
}

int failures = 0;
void compare(World& world, const std::string& what, const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(got[i] - want[i]) / std::abs(want[i]);
    worst = d >= 0 ? std::max(worst, d) : INFINITY;
  }
  const bool good = worst < 1e-10;
  if (!good || world.rank() == 0) std::printf("%-6s %s, rank %d: differs by %.1e\n", good ? "ok" : "FAILED", what.c_str(), world.rank(), worst);
  failures += !good;
}

}  // namespace

int main(int argc, char** argv) {
  return run<comm::Threads, comm::Nccl>(argc, argv, [](World& world) {
    SingleDevice<Gpt> alone(world.device(), config);
    const auto want = numbers_of(alone, 0, 1, 1);
    weft_test::for_each_degrees(std::size_t(world.size()), [&](const Degrees& degrees, std::size_t data_ranks) {
      const std::string layout = "dp " + std::to_string(data_ranks) + ", tp " + std::to_string(degrees.tp) + ", pp " + std::to_string(degrees.pp);
      Mesh<dp, tp, pp> mesh(world, degrees);
      const std::size_t micro_batches = 2;
      DataParallel<TensorParallel<PipelineParallel<Gpt, schedule::OneForwardOneBackward>>> model(mesh, config);
      compare(world, layout, numbers_of(model, std::size_t(mesh.rank(dp{})), data_ranks, micro_batches), want);
    });
    return failures == 0 ? 0 : 1;
  });
}
