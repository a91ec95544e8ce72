// SPDX-License-Identifier: Apache-2.0
// The first half of backward under the name of both.
// expect: this layer's backward returns an InputGradient, the result of backward_input: call it backward_input
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#else
  auto backward_input(const auto&, auto x, const auto& g) {
    auto deferred = times(g, x);
    return InputGradient{times_row(g, gain.for_operand(x)), std::move(deferred)};
  }
#endif
  void backward_weight(const auto& context, auto product) { gain.accumulate(context, sum_rows(product)); }
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
