// SPDX-License-Identifier: Apache-2.0
// A forward that may write into its layer.
// expect: this layer's forward is not const: .*store the values that backward reads in saved
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) { return Result{times_row(x, gain.for_operand(x)), x}; }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};
struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Own>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Sequential(LayerNorm(context / "norm", config.width), Own{Parameter<>(context, "gain", {config.width}, ones)}));
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
