// SPDX-License-Identifier: Apache-2.0
// The options of attention come before its mask.
// expect: attention cannot be called with these arguments: write attention.q, k, v,
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
      : layer(context / "layer", config.width, config.width), table(context, "table", {2, 2}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto q = reshape(layer(x), {2, 2, 4});
    auto h = attention(q, q, q, beside(q, table), {.causal = false});
    return reshape(silu(h), {4, 4});
  }
#else
  auto forward(const auto& x) const {
    auto q = reshape(layer(x), {2, 2, 4});
    auto h = attention(q, q, q, {.causal = false}, beside(q, table));
    return reshape(silu(h), {4, 4});
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
