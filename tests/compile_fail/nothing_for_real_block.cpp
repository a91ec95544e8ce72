// SPDX-License-Identifier: Apache-2.0
// A block forgets its gradient: the gradient of its output would be passed on as that of its input.
// expect: returned Nothing for an input of real numbers
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
constexpr bool forgets = true;
#else
constexpr bool forgets = false;
#endif

/// A layer norm.
struct Normed {
  LayerNorm norm;
  auto forward(const auto& context, const auto& x) const { return norm.forward(context, x); }
  auto backward(const auto& context, auto saved, const auto& g) {
    auto dx = weft::backward(norm, context, std::move(saved), g);
    if constexpr (forgets) return Nothing{};
    else return dx;
  }
};

struct Model {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Normed;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block{LayerNorm(context / "blocks" / std::to_string(index), config.width)};
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back{LayerNorm(context / "norm", config.width), Embedding(context / "tokens", config.vocabulary, config.width).table};
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {});
  return model.train_step(batch);
}
