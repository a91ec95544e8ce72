// SPDX-License-Identifier: Apache-2.0
// A number is assigned to a value.
// expect: a value of a forward keeps its type
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
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = 0.5;
    return h;
  }
#else
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = 0.5 * h;
    return h;
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
