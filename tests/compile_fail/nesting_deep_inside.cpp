// SPDX-License-Identifier: Apache-2.0
// The mistake is inside other wrappers, and the model is used normally: there is one error, at the wrong wrapper.
// expect: the wrapper inside TensorParallel belongs outside it
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<DataParallel<models::Gpt>>>, zero::Stage2>;
#else
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<models::Gpt>>, zero::Stage2>;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp, cp, tp> mesh(world, {.tp = 2, .cp = 2});
  Parallel model(mesh, {.layers = 2, .width = 32, .heads = 2});
  optim::AdamW optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss + model.evaluate(batch) + model.next_logits(batch.tokens)[0];
}
