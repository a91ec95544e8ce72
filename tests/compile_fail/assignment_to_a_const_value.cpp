// SPDX-License-Identifier: Apache-2.0
// A forward may assign to its local values, not to its argument.
// expect: the first operand is const
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
    x += layer(x);
    return silu(x);
  }
#else
  auto forward(const auto& x) const {
    auto h = silu(layer(x));
    h += x;
    h -= 0.5 * x;
    h *= 2;
    return h;
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
