// SPDX-License-Identifier: Apache-2.0
// A Branch with such a branch.
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
struct Both {
  Branch<LayerNorm, Own> branches;
  auto forward(const auto& context, const auto& x) const {
    auto result = branches.forward(context, x);
    if constexpr (requires { std::get<0>(result.output); })
      return Result{add(std::get<0>(result.output), std::get<1>(result.output)), std::move(result.saved)};
    else return result;
  }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return weft::backward_input(branches, context, std::move(saved), std::tuple{g, g});
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(branches, context, std::move(deferred)); }
};
struct Model : models::Gpt {
  using Block = Residual<Both>;
  static Block make_block(const auto& context, const Config& config, std::size_t) {
    return Residual(
        Both{Branch(LayerNorm(context / "norm", config.width), Own{Parameter<>(context, "gain", {config.width}, ones)})});
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
