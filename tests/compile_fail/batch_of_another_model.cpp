// SPDX-License-Identifier: Apache-2.0
// A batch that lacks a field which the model's has.
// expect: this batch is of another type than the model's: a field is missing
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"wanted", float> wanted;

struct Regression : Module<Regression> {
  using scalar = float;
  using Batch = FieldBatch<input, wanted>;
  struct Config {};
  Linear<> layer;
  Regression(const auto& context, const Config&) : layer(context / "layer", 4, 1) {}
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[wanted]); }
};
#ifdef WEFT_FAIL
using Given = FieldBatch<input>;
#else
using Given = FieldBatch<input, wanted>;
#endif
double go(World& world, const Given& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Regression> model(mesh, {});
  return model.train_step(batch);
}
