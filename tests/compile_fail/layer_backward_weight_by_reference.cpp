// SPDX-License-Identifier: Apache-2.0
// A backward_weight that takes the deferred state by non-const reference.
// expect: this layer's backward_weight cannot be called with the context and the values that backward_input deferred
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#ifdef WEFT_FAIL
  void backward_weight(const auto& context, auto& product) { gain.accumulate(context, sum_rows(product)); }
#else
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
#endif
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
