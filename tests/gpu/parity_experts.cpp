// SPDX-License-Identifier: Apache-2.0
// Mixtral over NCCL gives the losses and gradient norms of one rank: experts over ep and etp, folded over data and tensor
// parallelism, with ZeRO and schedules (./tests/run --gpu).
#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

#include "gpu/parity.hpp"

using namespace weft;
using gpu_parity::Case;

namespace {

using Composition = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::BasicMixtral<double>>>>>;

const std::vector<Case> layouts = {
    {1, {}},
    {2, {}},
    {2, {.ep = 2}},
    {2, {.ep = 2}, 2, "1f1b", 2},
    {2, {.etp = 2}},
    {2, {.tp = 2, .ep = 2}},
    {2, {.pp = 2}, 4, "zbv"},
    {4, {.ep = 4}},
    {4, {.ep = 2}, 2, "1f1b", 1},
    {4, {.ep = 2}, 2, "1f1b", 3},
    {4, {.ep = 2, .etp = 2}},
    {4, {.tp = 2, .ep = 4}},
    {4, {.tp = 2, .ep = 2}, 2, "1f1b", 2},
    {4, {.ep = 2, .pp = 2}, 4, "interleaved"},
    {4, {.ep = 2, .pp = 2}, 4, "dualpipev", 3},
};

}  // namespace

int main(int argc, char** argv) {
  return run<comm::Threads, comm::Nccl>(argc, argv, [](World& world) {
    const models::MixtralConfig config{.vocabulary = weft_test::batch_vocabulary,
                                       .layers = 4,
                                       .width = 16,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .intermediate = 12,
                                       .sequence = weft_test::batch_length,
                                       .experts = 8,
                                       .top_k = 2,
                                       .auxiliary_loss = 0.1,
                                       .z_loss = 0.01,
                                       .standard_deviation = 0.2};
    return gpu_parity::failures_of<Composition, Mesh<dp, tp, pp, ep, etp, edp>>(world, config, layouts) == 0 ? 0 : 1;
  });
}
