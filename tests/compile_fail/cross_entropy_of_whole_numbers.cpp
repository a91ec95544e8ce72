// SPDX-License-Identifier: Apache-2.0
// Labels in the place of the logits.
// expect: cross_entropy of logits that are whole numbers.*the logits first and the labels second
// mention: cross_entropy_of_whole_numbers.cpp:
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
    return cross_entropy(batch[label], batch[label]);
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
