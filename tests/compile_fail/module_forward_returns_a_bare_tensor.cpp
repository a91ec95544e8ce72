// SPDX-License-Identifier: Apache-2.0
// A forward that takes and returns tensors.
// expect: forward takes tensors of one type
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  Tensor<float> forward(const Tensor<float>& x) const { return silu(layer(x)); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
