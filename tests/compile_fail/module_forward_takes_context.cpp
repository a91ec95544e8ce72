// SPDX-License-Identifier: Apache-2.0
// A Module whose forward takes a context, like a layer with its own backward.
// expect: this Module.s forward cannot be called with its inputs: write
// mention: module_forward_takes_context.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return norm(x); }
#else
  auto forward(const auto& x) const { return norm(x); }
#endif
};
struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t) { return Own(context, config.width); }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
