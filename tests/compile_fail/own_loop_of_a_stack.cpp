// SPDX-License-Identifier: Apache-2.0
// A loop of one's own over a model of several units.
// expect: model.forward is for a model that is one Module
#include <weft/weft.hpp>

using namespace weft;

void go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, {});
#ifdef WEFT_FAIL
  model.forward(batch);
#else
  model.predict(batch);
#endif
}
