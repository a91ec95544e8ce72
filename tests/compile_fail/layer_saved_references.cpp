// SPDX-License-Identifier: Apache-2.0
// Saved state that refers to tensors which no longer exist in backward.
// expect: this layer's forward saves references, which dangle when backward runs: .*not std::tie
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Parameter<> gain;
  auto forward(const auto&, const auto& x) const {
#ifdef WEFT_FAIL
    return Result{times_row(x, gain.for_operand(x)), std::tie(x)};
#else
    return Result{times_row(x, gain.for_operand(x)), std::tuple{x}};
#endif
  }
  auto backward(const auto& context, auto saved, const auto& g) {
    const auto& [x] = saved;
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
