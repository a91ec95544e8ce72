// SPDX-License-Identifier: Apache-2.0
// ContextParallel around a model whose batch has no field with positions.
// expect: ContextParallel cuts sequences, and no field of this model's batch is declared as one.*data::SequenceDim<1>
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
inline constexpr data::Field<"series", float> series;
#else
inline constexpr data::Field<"series", float, data::SequenceDim<1>> series;
#endif
struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<series>;
  struct Config {};
  Parameter<> table;
  Own(const auto& context, const Config&) : table(context, "table", {4, 4}, ones) {}
  auto loss(const auto& batch) const { return sum_losses(sum_columns(matmul(merge_samples(batch[series]), table))); }
};
double go(World& world, const Own::Batch& batch) {
  Mesh<dp, cp> mesh(world, {.cp = 2});
  DataParallel<ContextParallel<Own>> model(mesh, {});
  return model.train_step(batch);
}
