// SPDX-License-Identifier: Apache-2.0
// A Module whose column-parallel product is not entered with to<Replicated<tp>>.
// expect: matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first
// mention: module_without_to.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : up(context, "up", {width, width}, normal(0.1)), down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    auto inside = x;
#else
    auto inside = to<Replicated<tp>>(x);
#endif
    return x + to_layout_of(x, matmul(Gelu()(matmul(inside, up)), down));
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
