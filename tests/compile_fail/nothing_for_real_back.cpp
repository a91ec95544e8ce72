// SPDX-License-Identifier: Apache-2.0
// A back forgets its gradient: the blocks would be trained on the gradient of the loss.
// expect: returned Nothing for an input of real numbers
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
constexpr bool forgets = true;
#else
constexpr bool forgets = false;
#endif

/// A language head.
struct Head {
  LanguageHead<LayerNorm> head;
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
  auto logits(const auto& context, const auto& x) const { return head.logits(context, x); }
  auto backward(const auto& context, auto saved, const auto& g) {
    auto dx = weft::backward(head, context, std::move(saved), g);
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
  using Block = Residual<LayerNorm>;
  using Back = Head;
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
    return Back{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width),
                                        Embedding(context / "tokens", config.vocabulary, config.width).table)};
  }
};

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {});
  return model.train_step(batch);
}
