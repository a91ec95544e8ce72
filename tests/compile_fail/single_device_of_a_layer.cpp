// SPDX-License-Identifier: Apache-2.0
// One rank has a model too, and not a layer.
// expect: a wrapper stands around another wrapper or a model
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Model = Linear<>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {8, 8});
  optim::AdamW optimizer(model);
  return model.train_step(batch);
}
