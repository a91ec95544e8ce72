// SPDX-License-Identifier: Apache-2.0
// Adapters for a model type without adapters.
// needs: xxhash.h
// expect: weft: this model's type has no adapters to load or save: give it the policy Lora
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/weft.hpp>

using namespace weft;

void go(World& world) {
  Mesh<dp, tp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<TensorParallel<models::Llama>> model(mesh, {});
#else
  DataParallel<TensorParallel<models::BasicLlama<float, Lora>>> model(mesh, {}, {.lora = {.rank = 8}});
#endif
  hugging_face::save_adapters("folder", model);
}
