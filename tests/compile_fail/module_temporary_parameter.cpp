// SPDX-License-Identifier: Apache-2.0
// A Module that multiplies by a Parameter that no longer exists in backward.
// expect: on a Parameter that is gone when backward asks for it
// mention: module_temporary_parameter.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<> table, gain;
  Own(const auto& context, std::size_t width)
      : table(context, "table", {width, width}, normal(0.1)), gain(context, "gain", {width}, ones) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return x + relu(matmul(x, Parameter<>(table)) * gain);
#else
    return x + relu(matmul(x, table) * gain);
#endif
  }
};
struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t i) {
    return Own(context / std::to_string(i), config.width);
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
