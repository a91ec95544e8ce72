// SPDX-License-Identifier: Apache-2.0
// A back divides in its forward by its own count: weft would divide again, and a mean of means differs between layouts.
// expect: must return its loss as a LossSum: sum_losses
#include <weft/weft.hpp>

using namespace weft;

struct SquareHead {
  LayerNorm norm;
  auto forward(const auto& context, const auto& x, const auto& targets) const {
    auto normed = norm.forward(context, x);
    Tensor<double, Kokkos::DefaultExecutionSpace, Shard<dp, 0>> losses(x.device(), {x.rows()});
    for (std::size_t row = 0; row < x.rows(); ++row) losses.data()[row] = double(normed.output.data()[row * x.columns()]);
#ifdef WEFT_FAIL
    Tensor<double, Kokkos::DefaultExecutionSpace, Partial<dp>> mean(x.device(), {1});
    for (std::size_t row = 0; row < x.rows(); ++row) mean.data()[0] += losses.data()[row] / double(x.rows());
    return Result{mean, std::move(normed.saved)};
#else
    return Result{sum_losses(context, losses, targets), std::move(normed.saved)};
#endif
  }
  auto logits(const auto&, const auto& x) const { return x; }
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>> dn(g.device(), {1, 1});
    return weft::backward_input(norm, context, std::move(saved), dn);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(norm, context, std::move(deferred)); }
};
struct Model : models::Gpt {
  using Back = SquareHead;
  static Back make_back(const auto& context, const Config& config, Front*) { return {LayerNorm(context / "norm", config.width)}; }
};
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
