// SPDX-License-Identifier: Apache-2.0
// A value is no condition of the program.
// expect: values are not compared in the program
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
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = layer(x);
    if (h > 0) return silu(h);
    return h;
  }
#else
  auto forward(const auto& x) const {
    auto h = layer(x);
    return where(greater(h, 0), silu(h), h);
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
