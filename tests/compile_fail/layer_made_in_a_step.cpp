// SPDX-License-Identifier: Apache-2.0
// The forward of a block makes a layer of weft, by its context and a name, as a constructor does.
// expect: weft: a layer or a Parameter is made while a step runs, so it would be drawn anew each time and never trained: make it in the constructor
// mention: layer_made_in_a_step.cpp:
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  LayerNorm norm;
  Linear<> up;
  Dropout dropout;
  Own(const auto& context, std::size_t width)
      : norm(context / "norm", width), up(context / "up", width, width), dropout(context / "dropout", 0.1) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    const Linear<> late(x.context() / "late", x.columns(), x.columns());
    return late(dropout(up(norm(x))));
#else
    return dropout(up(norm(x)));
#endif
  }
};
struct Model : models::Gpt {
  using Block = Own;
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Own(context / "blocks" / std::to_string(index), config.width);
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
