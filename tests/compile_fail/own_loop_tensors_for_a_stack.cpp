// SPDX-License-Identifier: Apache-2.0
// Tensors passed to the forward of a model of several units.
// expect: is for a model that is one Module, whose forward takes them
#include <weft/weft.hpp>

using namespace weft;

void go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, {});
#ifdef WEFT_FAIL
  auto call = model.forward(batch, model.forward(batch).output());
#else
  auto call = model.forward(batch);
#endif
  call.output();
}
