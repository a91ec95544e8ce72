// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2: pre-norm blocks, learned positions, GELU, tied embeddings. Parameters have Hugging Face's names and shapes (weights of
// blocks are stored [in, out], as its Conv1D does), so a checkpoint needs no conversion.
//
//   DataParallel<TensorParallel<models::Gpt>> model(mesh, {.layers = 12, .width = 768, .heads = 12});

#include <cmath>
#include <string>

#include <weft/core/text.hpp>
#include <weft/layer/combinators.hpp>
#include <weft/layer/model.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/embedding.hpp>
#include <weft/nn/gelu_mlp.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/loss.hpp>
#include <weft/nn/norm.hpp>

namespace weft::models {

struct GptConfig {
  std::size_t vocabulary = 256;
  std::size_t layers = 6;
  std::size_t width = 384;
  std::size_t heads = 6;
  std::size_t kv_heads = 0;    ///< 0: as many as heads
  std::size_t sequence = 256;  ///< longest sequence
  double dropout = 0;          ///< after the embedding, attention and MLP
  double epsilon = 1e-5;       ///< of the norms
  double standard_deviation = 0.02;
  Recomputation recompute = Recomputation::none;  ///< the activations that backward recomputes
};

namespace detail {

inline AttentionHeads gpt_heads(const GptConfig& config) {
  return {config.heads, config.kv_heads ? config.kv_heads : config.heads, config.width / config.heads};
}

// Query, key and value in one matrix, each of them cut by heads.
WEFT_COLD inline ParameterSharding fused_sharding(const AttentionHeads& heads) {
  const ParameterSharding::Segment kv{heads.key_value * heads.width, heads.key_value};
  return {{{heads.query * heads.width, heads.query}, kv, kv}, false};
}

// Spelled out: if these types were deduced from the functions below, every program would build each model's block once more, for
// one rank.
using GptIn = Linear<Column, StoredAs::in_out>;
using GptOut = Linear<Row, StoredAs::in_out>;
using GptMlp = Sequential<GeluMlp<LayerNorm, GptIn, GptOut>, Dropout>;
using GptBlock = Recompute<
    Sequential<Residual<Sequential<RecomputeInput<LayerNorm, GptIn>, CausalAttention, GptOut, Dropout>>, Residual<GptMlp>>>;
template <class Context>
WEFT_COLD GptMlp gpt_mlp(const Context& context, const GptConfig& config, double std, double residual_std) {
  const auto mlp = context / "mlp";
  const bool lean = config.recompute == Recomputation::selective;
  LayerNorm norm(context / "ln_2", config.width, config.epsilon);
  GptIn in(mlp / "c_fc", config.width, 4 * config.width, {std});
  GptOut out(mlp / "c_proj", 4 * config.width, config.width, {residual_std});
  Dropout dropout(mlp / "dropout", config.dropout);
  return GptMlp(GeluMlp(std::move(norm), std::move(in), std::move(out), lean), std::move(dropout));
}
template <class Context>
WEFT_COLD GptBlock gpt_block(const Context& context, const GptConfig& config) {
  const AttentionHeads heads = gpt_heads(config);
  const std::size_t width = config.width, fused = (heads.query + 2 * heads.key_value) * heads.width;
  const double std = config.standard_deviation, residual_std = std / std::sqrt(2.0 * double(config.layers));
  const auto attention = context / "attn";
  const bool lean = config.recompute == Recomputation::selective;
  Sequential block(
      Residual(Sequential(RecomputeInput(LayerNorm(context / "ln_1", width, config.epsilon),
                                         GptIn(attention / "c_attn", width, fused, {std, fused_sharding(heads)}), lean),
                          CausalAttention(attention, heads), GptOut(attention / "c_proj", width, width, {residual_std}),
                          Dropout(attention / "dropout", config.dropout))),
      Residual(gpt_mlp(context, config, std, residual_std)));
  return Recompute(std::move(block), config.recompute == Recomputation::full);
}

/// Token table and positions, with dropout: tokens -> hidden state.
class GptFront {
 public:
  template <class Context>
  GptFront(const Context& context, const GptConfig& config)
      : tokens_(context / "transformer.wte", config.vocabulary, config.width, config.standard_deviation),
        rest_(LearnedPositions(context / "transformer.wpe", config.sequence, config.width, config.standard_deviation),
              Dropout(context / "transformer.drop", config.dropout)) {}

  template <class Context, class Ids>
  auto forward(const Context& context, const Ids& ids) const {
    auto looked_up = tokens_.forward(context, ids);
    auto placed = rest_.forward(context, looked_up.output);
    using R = typename decltype(placed)::saved_type;
    return Result{std::move(placed.output), Saved<Ids, R>{std::move(looked_up.saved), std::move(placed.saved)}};
  }
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    auto rest = weft::backward_input(rest_, context, std::move(saved.rest), g);
    auto tokens = weft::backward_input(tokens_, context, std::move(saved.ids), rest.input_gradient);
    return InputGradient{Nothing{}, std::pair{std::move(tokens.deferred), std::move(rest.deferred)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    weft::backward_weight(tokens_, context, std::move(deferred.first));
    weft::backward_weight(rest_, context, std::move(deferred.second));
  }
  Embedding::Table& table() { return tokens_.table; }

 private:
  template <class Ids, class R>
  struct Saved {
    Ids ids;
    R rest;
  };
  Embedding tokens_;
  Sequential<LearnedPositions, Dropout> rest_;
};

}  // namespace detail

/// S: float, bfloat16 (parameters and activations; sums, norms and softmax statistics in float) or double.
template <weft::detail::Real S>
struct BasicGpt {
  using scalar = S;
  using Config = GptConfig;
  using Front = detail::GptFront;
  using Block = detail::GptBlock;
  using Back = LanguageHead<LayerNorm>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static std::size_t sequence(const Config& config) { return config.sequence; }
  WEFT_COLD static void check(const Config& config, const ModelDegrees& degrees) {
    weft::detail::require_sizes(config.vocabulary, config.width, config.heads);
    weft::detail::require_heads(detail::gpt_heads(config), degrees.tp);
    weft::detail::require_context(detail::gpt_heads(config), config.sequence, degrees);
  }
  template <class Context>
  static Front make_front(const Context& context, const Config& config) {
    return Front(context, config);
  }
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return detail::gpt_block(context / "transformer.h" / weft::detail::joined({index}), config);
  }
  /// Tied to the token table: shared if the front is on this rank, else a copy of the same name.
  template <class Context>
  static Back make_back(const Context& context, const Config& config, Front* here) {
    return Back(LayerNorm(context / "transformer.ln_f", config.width, config.epsilon),
                here ? here->table()
                     : Embedding(context / "transformer.wte", config.vocabulary, config.width, config.standard_deviation).table);
  }
};

using Gpt = BasicGpt<float>;

}  // namespace weft::models
