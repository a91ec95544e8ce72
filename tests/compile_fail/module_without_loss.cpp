// SPDX-License-Identifier: Apache-2.0
// train_step of a Module without a loss.
// expect: train_step and evaluate of a Module without a loss
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
struct Own : Module<Own> {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  Parameter<> weight;
  Own(const auto& context, const Config& config) : weight(context, "weight", {1, config.width}, ones) {}
  auto forward(const auto& x) const { return matmul(x, weight); }
#ifndef WEFT_FAIL
  auto loss(const auto& batch) const { return sum_losses(forward(batch[input])); }
#endif
};
double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}
