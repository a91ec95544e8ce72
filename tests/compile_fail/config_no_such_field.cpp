// SPDX-License-Identifier: Apache-2.0
// A misspelt field of a config: the compilers name the type without such a field.
// expect: no matching (function for call to .*DataParallel|constructor for initialization of .DataParallel)
// mention: GptConfig
// mention: names a field that it lacks
#include <weft/weft.hpp>

using namespace weft;

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<models::Gpt> model(mesh, {.layrs = 12});
#else
  DataParallel<models::Gpt> model(mesh, {.layers = 12});
#endif
  return model.train_step(batch);
}
