// SPDX-License-Identifier: Apache-2.0
// A back with a forward without targets, so it has no loss.
// expect: this layer's forward cannot be called .*a model's back: context, hidden state and targets
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  LanguageHead<LayerNorm> head;
#ifdef WEFT_FAIL
  auto forward(const auto& context, const auto& x) const { return head.norm.forward(context, x); }
#else
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
#endif
  auto backward(const auto& context, auto saved, const auto& g) { return weft::backward(head, context, std::move(saved), g); }
};
struct Model : models::Gpt {
  using Front = Embedding;
  using Back = Own;
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Own{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width), front->table)};
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
