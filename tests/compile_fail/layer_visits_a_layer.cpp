// SPDX-License-Identifier: Apache-2.0
// A for_each_parameter that shows a layer as if it were a parameter.
// expect: for_each_parameter visits something that is no Parameter: .*inner.for_each_parameter.visit.
// mention: LayerNorm
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  LayerNorm inner;
  auto forward(const auto& context, const auto& x) const { return inner.forward(context, x); }
  auto backward(const auto& context, auto saved, const auto& g) { return weft::backward(inner, context, std::move(saved), g); }
#ifdef WEFT_FAIL
  void for_each_parameter(auto&& visit) { visit(inner); }
#else
  void for_each_parameter(auto&& visit) { inner.for_each_parameter(visit); }
#endif
};
struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Own>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(Sequential(LayerNorm(context / "norm", config.width), Own{LayerNorm(context / "inner", config.width)}));
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
