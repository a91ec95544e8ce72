// SPDX-License-Identifier: Apache-2.0
// Logits of a model whose back has only a loss.
// expect: logits of a model whose Back has none: write `auto logits
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct LossAlone {
  LanguageHead<LayerNorm> head;
  auto forward(const auto& context, const auto& x, const auto& targets) const { return head.forward(context, x, targets); }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return weft::backward_input(head, context, std::move(saved), g);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(head, context, std::move(deferred)); }
#ifndef WEFT_FAIL
  auto logits(const auto& context, const auto& x) const { return head.logits(context, x); }
#endif
};
struct Own : models::Gpt {
  using Front = Embedding;
  using Back = LossAlone;
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back{LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width), front->table)};
  }
};

std::vector<float> go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Own>> model(mesh, {});
  return model.next_logits(batch.tokens);
}
