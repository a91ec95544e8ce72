// SPDX-License-Identifier: Apache-2.0
// A dense model under all wrappers (test_mutations.py).
#include "programs.hpp"

using namespace mutations;

namespace {
template <template <class> class Tensor = TensorParallel>
using Model = FullyShardedDataParallel<ContextParallel<Tensor<PipelineParallel<models::Gpt>>>>;
template <class M>
using Sequence = SequenceParallel<M>;
}  // namespace

int main(int argc, char** argv) {
  return main_of(argc, argv, [](World& world, const std::string& name) {
    const models::GptConfig config{.vocabulary = 16, .layers = 2, .width = 16, .heads = 4, .sequence = 8, .dropout = 0.1};
    ModelOptions options{.seed = 2};
    Mesh<dp, cp, tp, pp> mesh(world);
    const bool even = mesh.size(dp{}) % 2 == 0;
    if (name != "gpt") options.pipeline.schedule = schedule::one_forward_one_backward;
    if (name == "copies") options.shard.replicate = even ? 2 : 1;  // hybrid sharding
    if (name == "secondary") options.shard.secondary = even ? 2 : 0;
    if (name == "ulysses") options.context = ContextMethod::ulysses, options.shard.stage = 1;
    if (name == "sequence") {
      train<Model<Sequence>>(mesh, config, options);
    } else if (name == "gpt" || name == "copies" || name == "secondary" || name == "ulysses") {
      train<Model<>>(mesh, config, options);
    } else {
      return false;
    }
    return true;
  });
}
