// SPDX-License-Identifier: Apache-2.0
// Saved state with a mutex, which cannot be moved and kept until backward.
// expect: this layer's forward saves values that cannot be moved
// mention: Own
#include <weft/weft.hpp>

#include <mutex>

using namespace weft;

struct Own {
  Parameter<> gain;
  template <class X>
  struct Saved {
    X x;
#ifndef WEFT_FAIL
    Saved(Saved&&) = default;
#endif
    explicit Saved(const X& input) : x(input) {}
#ifdef WEFT_FAIL
    std::mutex mutex;
#endif
  };
  template <class X>
  auto forward(const auto&, const X& x) const {
    return Result<X, Saved<X>>{times_row(x, gain.for_operand(x)), Saved<X>(x)};
  }
  template <class X>
  auto backward(const auto& context, Saved<X>&& saved, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, saved.x)));
    return times_row(g, gain.for_operand(saved.x));
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
