// SPDX-License-Identifier: Apache-2.0
// A Module that applies a GELU to a term of a sum.
// expect: this operation is not linear, but its input is Partial
// mention: module_gelu_of_partial.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(matmul(to<Replicated<tp>>(x), up), down);
#ifdef WEFT_FAIL
    return x + to_layout_of(x, Gelu()(y));
#else
    return x + Gelu()(to_layout_of(x, y));
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
