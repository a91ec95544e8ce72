// SPDX-License-Identifier: Apache-2.0
// A repeated block with a whole input and a Partial output: the next block could not take it.
// expect: a repeated block must return what it takes|the two terms are placed differently|not the dual of its input
// mention: Partial<weft::tp>
#include <weft/weft.hpp>

using namespace weft;

template <class Context>
auto leaky_block(const Context& context, const models::GptConfig& config) {
#ifdef WEFT_FAIL
  return Sequential(LayerNorm(context, config.width), Linear<Column>(context / "up", config.width, config.width), Gelu{},
                    Linear<Row>(context / "down", config.width, config.width));
#else
  return Residual(Sequential(LayerNorm(context, config.width), Linear<Column>(context / "up", config.width, config.width), Gelu{},
                             Linear<Row>(context / "down", config.width, config.width)));
#endif
}
struct Model : models::Gpt {
  using Block = decltype(leaky_block(std::declval<const Context<Compute<Kokkos::DefaultExecutionSpace, float>>&>(), Config{}));
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return leaky_block(context / std::to_string(index), config);
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
