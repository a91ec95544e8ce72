// SPDX-License-Identifier: Apache-2.0
// A Module that adds a term of a sum to a whole value.
// expect: add: the two terms are placed differently; bring one to the other.s layout
// mention: module_adds_partial.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(Gelu()(matmul(to<Replicated<tp>>(x), up)), down);
#ifdef WEFT_FAIL
    return x + y;
#else
    return x + to_layout_of(x, y);
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
