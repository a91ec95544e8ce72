// SPDX-License-Identifier: Apache-2.0
// A model without experts has nothing to distribute over ep.
// expect: ExpertParallel needs a model with experts
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  ExpertParallel<models::Llama> model(mesh, models::LlamaConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<models::Mixtral>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif
