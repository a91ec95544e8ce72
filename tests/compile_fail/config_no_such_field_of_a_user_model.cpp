// SPDX-License-Identifier: Apache-2.0
// A misspelt field of a user's config.
// expect: no matching (function for call to .*DataParallel|constructor for initialization of .DataParallel)
// mention: Model::Config
// mention: names a field that it lacks
#include <weft/weft.hpp>

using namespace weft;

struct Model {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back{LayerNorm(context / "norm", config.width), Embedding(context / "tokens", config.vocabulary, config.width).table};
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<TensorParallel<Model>> model(mesh, {.widht = 16});
#else
  DataParallel<TensorParallel<Model>> model(mesh, {.width = 16});
#endif
  return model.train_step(batch);
}
