// SPDX-License-Identifier: Apache-2.0
// A mixture of experts over both meshes (test_mutations.py).
#include "programs.hpp"

using namespace mutations;

namespace {
using Model = FullyShardedDataParallel<ContextParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>>;
}

int main(int argc, char** argv) {
  return main_of(argc, argv, [](World& world, const std::string& name) {
    models::MixtralConfig config{.vocabulary = 16,
                                 .layers = 2,
                                 .width = 16,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .intermediate = 12,
                                 .sequence = 8,
                                 .experts = 4,
                                 .top_k = 2,
                                 .auxiliary_loss = 0.1,
                                 .z_loss = 0.01,
                                 .standard_deviation = 0.2,
                                 .tied = name == "balance"};
    if (name == "balance") config.auxiliary_loss = 0, config.bias_rate = 0.05;
    else if (name == "data") config.level = nn::Level::data;
    else if (name != "experts") return false;
    Mesh<dp, cp, tp, pp, ep, etp, edp> mesh(world);
    const std::size_t micro_batches = name == "data" ? 1 : 2;  // statistics of a micro-batch depend on their number
    train<Model>(mesh, config, {.seed = 2, .shard = {.stage = 2}, .pipeline = {.schedule = schedule::one_forward_one_backward}},
                 micro_batches);
    return true;
  });
}
