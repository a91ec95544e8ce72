// SPDX-License-Identifier: Apache-2.0
// A loss of a value that the compiler has refused: there is one error, and none about the loss.
// expect: this operation is not linear, but its input is Partial.*to<Invariant<axis>>.x.
// mention: module_loss_of_a_refused_value.cpp:
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"image", float> image;
inline constexpr data::Field<"label", std::int32_t> label;

struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<image, label>;
  struct Config {};
  Linear<> linear;
  Own(const auto& context, const Config&) : linear(context, 4, 4) {}
  auto forward(const auto& x) const { return linear(x); }
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return mse(forward(batch[image]), forward(batch[image]) * 2 + exp(to<Partial<dp>>(batch[image])));
#else
    return cross_entropy(forward(batch[image]), batch[label]);
#endif
  }
};
double go(World& world, const Own::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
  return model.train_step(batch);
}
