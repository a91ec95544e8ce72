// SPDX-License-Identifier: Apache-2.0
// A whole gain with the columns of a Linear<Column>, in a model: there is no second error about its gradient.
// expect: a bias or gain that every rank has whole, beside columns that an axis cuts
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Gain = Parameter<>;
#else
using Gain = Parameter<Shard<tp, 0>>;
#endif
struct Scale {
  Gain gain;
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};
struct Model : models::Gpt {
  using Block = Residual<Sequential<LayerNorm, Linear<Column>, Scale, Linear<Row>>>;
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "blocks" / std::to_string(index);
    return Residual(Sequential(LayerNorm(here / "norm", config.width), Linear<Column>(here / "up", config.width, config.width),
                               Scale{Gain(here, "gain", {config.width}, ones)},
                               Linear<Row>(here / "down", config.width, config.width)));
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
