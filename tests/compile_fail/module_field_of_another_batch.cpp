// SPDX-License-Identifier: Apache-2.0
// A Module's loss that uses a field which its batch lacks.
// expect: the batch of this model has no such field
// mention: label
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"label", float> label;
struct Own : Module<Own> {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
#ifdef WEFT_FAIL
  using Batch = FieldBatch<input>;
#else
  using Batch = FieldBatch<input, label>;
#endif
  Parameter<> weight;
  Own(const auto& context, const Config& config) : weight(context, "weight", {config.width, config.width}, ones) {}
  auto loss(const auto& batch) const { return mse(matmul(batch[input], weight), batch[label]); }
};
double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}
