// SPDX-License-Identifier: Apache-2.0
// Checkpoints of Hugging Face.

using namespace weft;

// section: config_of_another_model
// A config that no folder of `transformers` has.
// needs: xxhash.h
// expect: weft: read_config<Config>: Config is models::GptConfig, LlamaConfig or MixtralConfig
#include <weft/hugging_face/config.hpp>
struct Config {
  std::size_t layers = 2;
};

std::size_t layers(const std::string& folder) {
#ifdef WEFT_FAIL
  return hugging_face::read_config<Config>(folder).layers;
#else
  return hugging_face::read_config<models::LlamaConfig>(folder).layers;
#endif
}

// section: of_a_user_model
// A folder of `transformers` for a model that it does not have.
// needs: xxhash.h
// expect: weft: hugging_face::load and save are of models::Gpt, Llama and Mixtral
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/weft.hpp>
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

void go(World& world) {
  Mesh<dp, tp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<TensorParallel<Model>> model(mesh, {});
  hugging_face::save("folder", model);
#else
  DataParallel<TensorParallel<Model>> model(mesh, {});
  checkpoint::save("folder", model, 0);
#endif
}
