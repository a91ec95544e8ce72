// SPDX-License-Identifier: Apache-2.0
// A front with a forward that forgets its Result: there is no error about the blocks after it.
// expect: this layer's forward returns something else than a Result
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Embedding table;
  auto forward(const auto& context, const auto& tokens) const {
#ifdef WEFT_FAIL
    return table.forward(context, tokens).output;
#else
    return table.forward(context, tokens);
#endif
  }
  auto backward(const auto& context, auto saved, const auto& g) { return weft::backward(table, context, std::move(saved), g); }
};
struct Model : models::Gpt {
  using Front = Own;
  using Back = LanguageHead<LayerNorm>;
  static Front make_front(const auto& context, const Config& config) {
    return Own{Embedding(context / "tokens", config.vocabulary, config.width)};
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table.table);
  }
};
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  model.next_logits(batch.tokens);
  return model.train_step(batch);
}
