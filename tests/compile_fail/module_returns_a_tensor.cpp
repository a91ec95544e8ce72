// SPDX-License-Identifier: Apache-2.0
// A Module that returns a tensor, through which no gradient goes.
// expect: this Module.s forward returns something else than a Variable
// mention: module_returns_a_tensor.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return norm(x).value();
#else
    return norm(x);
#endif
  }
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
