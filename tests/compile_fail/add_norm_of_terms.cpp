// SPDX-License-Identifier: Apache-2.0
// A sum whose second term is a term of a sum over tp itself, called in front of a norm.
// expect: add: the two terms are placed differently; bring one to the other.s layout
// mention: add_norm_of_terms.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  LayerNorm norm;
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context, std::size_t width)
      : norm(context / "norm", width),
        up(context, "up", {width, width}, normal(0.1)),
        down(context, "down", {width, width}, normal(0.1)) {}
  auto forward(const auto& x) const {
    auto branch = matmul(matmul(to<Replicated<tp>>(x), up), down);
#ifdef WEFT_FAIL
    const auto [sum, normed] = add_norm(norm, x, branch);
#else
    const auto [sum, normed] = add_norm(norm, x, to_layout_of(x, branch));
#endif
    return sum + normed;
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
