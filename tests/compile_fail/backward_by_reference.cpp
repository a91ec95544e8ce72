// SPDX-License-Identifier: Apache-2.0
// A backward takes the saved state by non-const reference, but it is passed as an rvalue.
// expect: that can be called with the values that its forward saved, passed as an rvalue: take `saved` by value
// mention: Scale
#include <weft/weft.hpp>

using namespace weft;

struct Scale {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto& context, auto& x, const auto& g) { return through(context, x, g); }
#else
  auto backward(const auto& context, auto x, const auto& g) { return through(context, x, g); }
#endif
  auto through(const auto& context, const auto& x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
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
