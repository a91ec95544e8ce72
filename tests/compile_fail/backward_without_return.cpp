// SPDX-License-Identifier: Apache-2.0
// A backward that adds to its parameter and returns nothing.
// expect: this layer's backward returns nothing .void.: return the gradient of the input
// mention: Scale
#include <weft/weft.hpp>

using namespace weft;

struct Scale {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
#ifndef WEFT_FAIL
    return times_row(g, gain.for_operand(x));
#endif
  }
};
struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Scale>>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Sequential(LayerNorm(context / "norm", config.width), Scale{Parameter<>(context, "gain", {config.width}, ones)}));
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
