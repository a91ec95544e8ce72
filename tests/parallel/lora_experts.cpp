// SPDX-License-Identifier: Apache-2.0
// Mixtral with low-rank adapters in its attention gives the losses, norms, gradients and values of one rank on meshes of experts:
// gradients pass through frozen routers and experts.

#include "support/adapters.hpp"
#include "support/matrix.hpp"

using namespace weft_test;

TEST_CASE("Mixtral, adapters beside attention, experts over ep and etp") {
  using Model = models::BasicMixtral<double, Lora>;
  using Composition = FullyShardedDataParallel<ContextParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>>>;
  check_adapters<Composition, FoldedMesh>(mixtral_config(), adapters({"*"}), 4 * 4,
                                          {{2, {}, 2, "1f1b", 0},
                                           {2, {.ep = 2}, 2, "1f1b", 0},
                                           {4, {.tp = 2, .ep = 2}, 2, "1f1b", 1},
                                           {4, {.ep = 4}, 1, "1f1b", 3},
                                           {4, {.cp = 2, .ep = 2, .etp = 2}, 1, "1f1b", 0},
                                           {8, {.tp = 2, .ep = 2, .pp = 2}, 4, "interleaved-zb", 2}});
}
