// SPDX-License-Identifier: Apache-2.0
// A C++ mistake in the forward of a nested Module gives only the compiler's error.
// expect: no member named .no_such_member
// mention: module_error_in_a_nested_forward.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Inner : Module<Inner> {
  LayerNorm norm;
  Inner(const auto& context, std::size_t width) : norm(context, width) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return norm(x).no_such_member();
#else
    return norm(x);
#endif
  }
};
struct Own : Module<Own> {
  Inner inner;
  Own(const auto& context, std::size_t width) : inner(context, width) {}
  auto forward(const auto& x) const { return inner(x); }
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
