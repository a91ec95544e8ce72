// SPDX-License-Identifier: Apache-2.0
// A forward makes a parameter, which would be drawn anew in each step. Layers make their parameters in their constructor.
// expect: weft: a layer or a Parameter is made while a step runs, so it would be drawn anew each time and never trained: make it in the constructor
// mention: parameter_made_in_a_step.cpp:
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Scaled : Module<Scaled> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {};
  Parameter<> gain;
  Scaled(const auto& context, const Config&) : gain(context, "gain", {4}, ones) {}
  auto loss(const auto& batch) const {
    auto x = batch[input];
#ifdef WEFT_FAIL
    const Parameter<> late(x.context(), "late", {4}, ones);
    return mse(times_row(times_row(x, gain), late), x);
#else
    return mse(times_row(x, gain), x);
#endif
  }
};
double go(World& world, const Scaled::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Scaled> model(mesh, {});
  return model.train_step(batch);
}
