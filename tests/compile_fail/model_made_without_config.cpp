// SPDX-License-Identifier: Apache-2.0
// A model constructed only from its mesh.
// expect: a model is made with its config: DataParallel<Model> model.mesh
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
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<Net> model(mesh);
  return model.train_step(batch);
#else
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
#endif
}
