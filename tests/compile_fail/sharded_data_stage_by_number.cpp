// SPDX-License-Identifier: Apache-2.0
// A stage of ZeRO is a type. (Uses of the alias would be further errors of g++, for which such a type is invalid.)
// expect: type/value mismatch|must be a type
// mention: zero::Stage3|ZeroStage1Or2Or3
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, 3>;
#else
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage3>;

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
