// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2: pre-norm blocks, learned positions, GELU or another activation, tied or untied embeddings. Parameters have Hugging
// Face's names and shapes (weights of blocks are stored [in, out], as in its Conv1D), so checkpoints need no conversion.
//
//   DataParallel<TensorParallel<models::Gpt>> model(mesh, {.layers = 12, .width = 768, .heads = 12});

#include <cmath>
#include <vector>

#include <weft/autograd/model.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/core/text.hpp>
#include <weft/models/config_parts.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/add_norm.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/embedding.hpp>
#include <weft/nn/gelu_mlp.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/lora.hpp>
#include <weft/nn/loss.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/variables.hpp>

namespace weft::models {

/// The sizes and options of a Gpt.
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
  Recomputation recompute = Recomputation::none;        ///< the activations that backward recomputes
  AttentionMask mask = {};                              ///< causal, without a window
  std::vector<bool> window_layers = {};                 ///< layers that have the mask's window; empty: all
  std::size_t intermediate = 0;                         ///< width of the MLP; 0: 4 width
  MlpActivation activation = MlpActivation::gelu_tanh;  ///< of the MLP
  bool tied = true;                                     ///< the last projection shares the embedding's table
  FolderFiles files = {};                               ///< texts of the folder from which the config was read

  /// Width of the MLP between its projections: `intermediate`, or four times the width if that is 0.
  std::size_t intermediate_width() const { return intermediate ? intermediate : 4 * width; }
};

namespace detail {

inline AttentionHeads gpt_heads(const GptConfig& config) {
  return {config.heads, config.kv_heads ? config.kv_heads : config.heads, config.width / config.heads};
}

// Query, key and value in one matrix, each sharded by heads.
WEFT_COLD inline ParameterSharding fused_sharding(const AttentionHeads& heads) {
  const ParameterSharding::Segment kv{heads.key_value * heads.width, heads.key_value};
  return {{{heads.query * heads.width, heads.query}, kv, kv}, false};
}

// x + attention(norm(x)), then the same with the MLP. x [tokens, width]
template <class Adapters>
class GptBlock : public Module<GptBlock<Adapters>> {
  using GptIn = typename Adapters::template linear<Linear<Column, StoredAs::in_out>>;
  using GptOut = typename Adapters::template linear<Linear<Row, StoredAs::in_out>>;

 public:
  template <class Context>
  WEFT_COLD GptBlock(const Context& context, const GptConfig& config, const AttentionMask& mask)
      : GptBlock(context, config, mask, gpt_heads(config), config.standard_deviation / std::sqrt(2.0 * double(config.layers))) {}

  auto forward(const auto& x) const {
    return recompute_ == Recomputation::full ? recompute([this](const auto& y) { return this->block(y); }, x) : block(x);
  }

 private:
  template <class Context>
  GptBlock(const Context& context, const GptConfig& config, const AttentionMask& mask, const AttentionHeads& heads,
           double residual_std)
      : recompute_(config.recompute),
        attention_norm_(context / "ln_1", config.width, config.epsilon),
        query_key_value_(context / "attn" / "c_attn", config.width, (heads.query + 2 * heads.key_value) * heads.width,
                         {config.standard_deviation, fused_sharding(heads)}),
        attention_(context / "attn", heads, mask),
        out_(context / "attn" / "c_proj", config.width, config.width, {residual_std}),
        attention_dropout_(context / "attn" / "dropout", config.dropout),
        mlp_norm_(context / "ln_2", config.width, config.epsilon),
        mlp_(GptIn(context / "mlp" / "c_fc", config.width, config.intermediate_width(), {config.standard_deviation}),
             GptOut(context / "mlp" / "c_proj", config.intermediate_width(), config.width, {residual_std}),
             config.recompute == Recomputation::selective, config.activation),
        mlp_dropout_(context / "mlp" / "dropout", config.dropout) {}

  auto block(const auto& x) const {
    const auto normed = selective() ? recompute([this](const auto& in) { return attention_norm_(in); }, x) : attention_norm_(x);
    const auto attended = attention_dropout_(out_(attention_(query_key_value_(normed))));
    const auto [y, inside] = add_norm(mlp_norm_, x, to_layout_of(x, attended), selective());
    return y + to_layout_of(y, mlp_dropout_(mlp_(inside)));
  }
  bool selective() const { return recompute_ == Recomputation::selective; }

  Recomputation recompute_;
  LayerNorm attention_norm_;
  GptIn query_key_value_;
  Attention attention_;
  GptOut out_;
  Dropout attention_dropout_;
  LayerNorm mlp_norm_;
  GeluMlp<GptIn, GptOut> mlp_;
  Dropout mlp_dropout_;
};

/// Token table and positions, with dropout: tokens -> hidden state.
class GptFront : public Module<GptFront> {
 public:
  template <class Context>
  GptFront(const Context& context, const GptConfig& config)
      : tokens_(context / "transformer.wte", config.vocabulary, config.width, config.standard_deviation),
        positions_(context / "transformer.wpe", config.sequence, config.width, config.standard_deviation),
        dropout_(context / "transformer.drop", config.dropout) {}

  auto forward(const auto& ids) const { return dropout_(positions_(tokens_(ids))); }
  Embedding::Table& table() { return tokens_.table; }

 private:
  Embedding tokens_;
  LearnedPositions positions_;
  Dropout dropout_;
};

}  // namespace detail

/// S: float, bfloat16 (parameters and activations; sums, norms and softmax statistics in float) or double. Adapters: Lora,
/// applied to the layers in ModelOptions::lora.
template <weft::detail::Real S, class Adapters = NoAdapters>
struct BasicGpt {
  using scalar = S;
  using Config = GptConfig;
  using adapters = Adapters;
  using Front = detail::GptFront;
  using Block = detail::GptBlock<Adapters>;
  using Back = LanguageHead<LayerNorm>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static std::size_t sequence(const Config& config) { return config.sequence; }
  WEFT_COLD static void check(const Config& config, const ModelDegrees& degrees) {
    weft::detail::require_sizes(config.vocabulary, config.width, config.heads);
    weft::detail::require_heads(detail::gpt_heads(config), degrees.tp);
    weft::detail::require_context(detail::gpt_heads(config), config.sequence, degrees);
    detail::require_window_layers(config);
    if (config.intermediate_width() % degrees.tp != 0)
      throw_error<LayoutError>({"intermediate(", config.intermediate_width(), ") % tp(", degrees.tp, ") != 0"});
  }
  template <class Context>
  static Front make_front(const Context& context, const Config& config) {
    return Front(context, config);
  }
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return Block(context / "transformer.h" / weft::detail::joined({index}), config, detail::layer_mask(config, index));
  }
  /// A tied table is shared if the front is on this rank, otherwise a copy with the same name.
  template <class Context>
  static Back make_back(const Context& context, const Config& config, Front* here) {
    const auto name = [&] { return config.tied ? context / "transformer.wte" : context / "lm_head"; };
    return Back(LayerNorm(context / "transformer.ln_f", config.width, config.epsilon),
                config.tied && here ? here->table()
                                    : Embedding(name(), config.vocabulary, config.width, config.standard_deviation).table);
  }
};

/// BasicGpt in float.
using Gpt = BasicGpt<float>;

}  // namespace weft::models
