// SPDX-License-Identifier: Apache-2.0
// A Residual of a layer with a forward that forgets its Result, in training and for logits.
// expect: this layer's forward returns something else than a Result
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Parameter<> gain;
#ifdef WEFT_FAIL
  auto forward(const auto&, const auto& x) const { return times_row(x, gain.for_operand(x)); }
#else
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
#endif
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};
struct Model : models::Gpt {
  using Block = Residual<Own>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    const auto own = [&](const char* name) { return Own{Parameter<>(context / name, "gain", {config.width}, ones)}; };
    return Residual(own("own"));
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  model.logits(batch.tokens);
  return model.train_step(batch);
}
