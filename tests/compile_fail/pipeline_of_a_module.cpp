// SPDX-License-Identifier: Apache-2.0
// A pipeline of a Module, which has one unit.
// expect: PipelineParallel cuts a model between its units, and a Module is one unit
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
  auto loss(const auto& batch) const { return sum_losses(matmul(batch[input], weight)); }
};
double go(World& world, const Own::Batch& batch) {
#ifdef WEFT_FAIL
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<Own>> model(mesh, {});
#else
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
#endif
  return model.train_step(batch);
}
