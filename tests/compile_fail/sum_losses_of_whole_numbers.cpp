// SPDX-License-Identifier: Apache-2.0
// A loss without a gradient.
// expect: sum_losses of whole numbers, which have no gradient
// mention: sum_losses_of_whole_numbers.cpp:
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
    return sum_losses(batch[label]);
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
