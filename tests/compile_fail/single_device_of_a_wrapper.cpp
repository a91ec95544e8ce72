// SPDX-License-Identifier: Apache-2.0
// A model in a wrapper has its own mesh.
// expect: SingleDevice takes a model alone, and this is one in a wrapper
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Model = DataParallel<models::Gpt>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), models::GptConfig{});
  optim::AdamW optimizer(model);
  return model.train_step(batch);
}
