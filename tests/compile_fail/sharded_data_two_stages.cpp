// SPDX-License-Identifier: Apache-2.0
// One stage of ZeRO at a time.
// expect: FullyShardedDataParallel has one stage of ZeRO
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage1, Reproducible, zero::Stage3>;
#else
using Model = FullyShardedDataParallel<models::Gpt, Reproducible, zero::Stage3>;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
