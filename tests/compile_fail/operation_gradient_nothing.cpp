// SPDX-License-Identifier: Apache-2.0
// An operation that returns Nothing as the gradient of real numbers.
// expect: backward returned Nothing for an input of real numbers
// mention: operation_gradient_nothing.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Twice : Primitive<Twice> {
  auto forward(const auto& x) const { return scale(x, 2); }
  auto gradient(const auto& g, const auto&) const {
#ifdef WEFT_FAIL
    return Nothing{};
#else
    return scale(g, 2);
#endif
  }
};
struct Own : Module<Own> {
  LayerNorm norm;
  Own(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const { return Twice()(norm(x)); }
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
