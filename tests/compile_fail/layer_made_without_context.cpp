// SPDX-License-Identifier: Apache-2.0
// A layer constructed only from sizes, as in other frameworks.
// expect: Linear takes the context with its name
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
#ifdef WEFT_FAIL
  Net(const auto& context, const Config& config) : layer(config.width, config.width) {}
#else
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#endif
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
