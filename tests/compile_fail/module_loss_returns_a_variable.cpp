// SPDX-License-Identifier: Apache-2.0
// A Module's loss that returns the result of its forward.
// expect: the loss.batch. of this Module must return a loss
// mention: module_loss_returns_a_variable.cpp:
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
    return forward(batch[image]);
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
