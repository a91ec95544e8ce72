// SPDX-License-Identifier: Apache-2.0
// GPT over NCCL gives the losses and gradient norms of one rank: data, context, tensor and pipeline parallelism, every stage of
// ZeRO and every schedule (./tests/run --gpu). Several ranks may share one GPU (WEFT_SHARE_GPUS=1): tests/support/torchrun starts
// them.
#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

#include "gpu/parity.hpp"

using namespace weft;
using gpu_parity::Case;

namespace {

using Composition = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<models::BasicGpt<double>>>>>;

std::vector<Case> layouts() {
  std::vector<Case> all;
  for (const std::size_t world : {1, 2, 4, 8})
    weft_test::for_each_degrees(world, [&](const Degrees& degrees, std::size_t) { all.push_back({world, degrees}); });
  for (int zero = 1; zero <= 3; ++zero) {
    all.push_back({2, {}, 2, "1f1b", zero});
    all.push_back({4, {.tp = 2}, 2, "1f1b", zero});
    all.push_back({4, {.pp = 2}, 4, zero == 1 ? "gpipe" : zero == 2 ? "interleaved" : "zbv", zero});
    all.push_back({4, {.cp = 2}, 2, "1f1b", zero, zero == 3});
  }
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev"})
    all.push_back({2, {.pp = 2}, 4, schedule});
  for (const bool ulysses : {false, true}) {
    all.push_back({2, {.cp = 2}, 2, "1f1b", 0, ulysses});
    all.push_back({4, {.tp = 2, .cp = 2}, 2, "1f1b", 0, ulysses});
    all.push_back({4, {.cp = 2, .pp = 2}, 4, "zb-h1", 0, ulysses});
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return run<comm::Threads, comm::Nccl>(argc, argv, [](World& world) {
    const models::GptConfig config{
        .vocabulary = weft_test::batch_vocabulary, .layers = 4, .width = 32, .heads = 4, .sequence = weft_test::batch_length};
    return gpu_parity::failures_of<Composition, Mesh<dp, cp, tp, pp>>(world, config, layouts()) == 0 ? 0 : 1;
  });
}
