// SPDX-License-Identifier: Apache-2.0
// A Llama whose sums over tp go in pieces or have fixed terms, and low-rank adapters (test_mutations.py).
#include "programs.hpp"

#include <weft/nn/lora.hpp>

using namespace mutations;

namespace {
template <class Model, template <class> class Tensor = TensorParallel>
using Layers = FullyShardedDataParallel<ContextParallel<Tensor<PipelineParallel<Model>>>>;
template <class M>
using Sequence = SequenceParallel<M>;
}  // namespace

int main(int argc, char** argv) {
  return main_of(argc, argv, [](World& world, const std::string& name) {
    models::LlamaConfig config{.vocabulary = 16,
                               .layers = 2,
                               .width = 16,
                               .heads = 4,
                               .kv_heads = 4,
                               .intermediate = 24,
                               .sequence = 8,
                               .standard_deviation = 0.2};
    ModelOptions options{.seed = 2};
    Mesh<dp, cp, tp, pp> mesh(world);
    if (name == "pieces" || name == "rows") config.sequence = 64, options.tensor.piece_bytes = 64;
    if (name == "pieces") {
      train<Layers<models::Llama>>(mesh, config, options);
    } else if (name == "rows" || name == "sequence") {
      train<Layers<models::Llama, Sequence>>(mesh, config, options);
    } else if (name == "recomputed") {
      config.recompute = Recomputation::selective;
      train<Layers<models::Llama>>(mesh, config, options);
    } else if (name == "degree") {
      options.context = ContextMethod::ulysses;
      options.numerics.reproducible = true, options.numerics.reproducible_degree = 4;
      train<Layers<models::Llama>>(mesh, config, options);
    } else if (name == "adapters") {
      options.lora = {.rank = 3, .alpha = 6, .up_deviation = 0.1};
      train<Layers<models::BasicLlama<float, Lora>>>(mesh, config, options);
    } else {
      return false;
    }
    return true;
  });
}
