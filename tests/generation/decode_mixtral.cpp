// SPDX-License-Identifier: Apache-2.0
// covers: weft/models/mixtral.hpp
// Mixtral decodes with a cache to the same logits as its whole forward, with experts on several ranks.

#include "generation/decoding.hpp"

#include <weft/models/mixtral.hpp>

using namespace weft_test;

TEST_CASE("Mixtral decodes with a cache as its whole forward does") {
  using Model = models::BasicMixtral<double>;
  check_decoding<FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>>, ExpertMesh>(
      mixtral_config(),
      {{2, {.tp = 2}}, {2, {.pp = 2}}, {2, {.ep = 2}}, {2, {.tp = 2, .ep = 2}}, {4, {.tp = 2, .ep = 2, .pp = 2}}}, 1e-12);
}
