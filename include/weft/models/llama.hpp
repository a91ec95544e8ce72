// SPDX-License-Identifier: Apache-2.0
#pragma once
// Llama (arXiv:2302.13971): pre-norm blocks with RMS norm, rotary positions, grouped-query attention and SwiGLU, no biases.
// Parameters have Hugging Face's names and shapes, so a checkpoint needs no conversion.
//
//   DataParallel<TensorParallel<models::Llama>> model(mesh, {.layers = 12, .width = 768, .heads = 12, .kv_heads = 4});

#include <cmath>
#include <string>

#include <weft/core/text.hpp>
#include <weft/layer/combinators.hpp>
#include <weft/layer/model.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/embedding.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/loss.hpp>
#include <weft/nn/norm.hpp>

namespace weft::models {

struct LlamaConfig {
  std::size_t vocabulary = 256;
  std::size_t layers = 6;
  std::size_t width = 384;
  std::size_t heads = 6;
  std::size_t kv_heads = 0;      ///< 0: as many as heads
  std::size_t intermediate = 0;  ///< width of the MLP; 0: 8/3 width, rounded up to a multiple of 64
  std::size_t sequence = 256;
  double dropout = 0;  ///< after attention and MLP
  double epsilon = 1e-5;
  double rope_base = 10000;
  double standard_deviation = 0.02;
  bool tied = false;                              ///< the last projection shares the embedding's table
  Recomputation recompute = Recomputation::none;  ///< the activations that backward recomputes
  AttentionMask mask = {};                        ///< causal, without a window

  /// Width of the MLP between its projections: `intermediate`, or if that is 0, 8/3 of the width in steps of 64.
  std::size_t intermediate_width() const { return intermediate ? intermediate : (width * 8 / 3 + 63) / 64 * 64; }
};

namespace detail {

inline AttentionHeads llama_heads(const LlamaConfig& config) {
  return {config.heads, config.kv_heads ? config.kv_heads : config.heads, config.width / config.heads};
}

// Spelled out: if these types were deduced from the function below, every program would build each model's block once more, for
// one rank.
using LlamaIn = Linear<Column, StoredAs::out_in, false>;
using LlamaOut = Linear<Row, StoredAs::out_in, false>;
using LlamaAttention =
    Residual<Sequential<RecomputeInput<Sequential<RmsNorm, EnterParallelRegion<tp>>, Branch<LlamaIn, LlamaIn, LlamaIn>>,
                        RotaryPositions, Attention, LlamaOut, Dropout>>;
using LlamaBlock = Recompute<Sequential<
    LlamaAttention, Residual<Sequential<RecomputeInput<Sequential<RmsNorm, EnterParallelRegion<tp>>, Branch<LlamaIn, LlamaIn>>,
                                        RecomputeInput<SwiGlu, LlamaOut>, Dropout>>>>;

/// x + attention(norm(x)).
template <class Context>
WEFT_COLD LlamaAttention llama_attention(const Context& context, const LlamaConfig& config) {
  using In = LlamaIn;
  using Out = LlamaOut;
  const AttentionHeads heads = llama_heads(config);
  const std::size_t width = config.width, kv_width = heads.key_value * heads.width;
  const double std = config.standard_deviation, residual_std = std / std::sqrt(2.0 * double(config.layers));
  const auto attention = context / "self_attn";
  const ParameterSharding by_query{{{width, heads.query}}, false}, by_key_value{{{kv_width, heads.key_value}}, false};
  return Residual(Sequential(
      RecomputeInput(Sequential(RmsNorm(context / "input_layernorm", width, config.epsilon), EnterParallelRegion<tp>{}),
                     Branch(In(attention / "q_proj", width, width, {std, by_query}),
                            In(attention / "k_proj", width, kv_width, {std, by_key_value}),
                            In(attention / "v_proj", width, kv_width, {std, by_key_value})),
                     config.recompute == Recomputation::selective),
      RotaryPositions(heads.width, config.rope_base), Attention(attention, heads, config.mask),
      Out(attention / "o_proj", width, width, {residual_std, by_query}), Dropout(attention / "dropout", config.dropout)));
}

template <class Context>
WEFT_COLD LlamaBlock llama_block(const Context& context, const LlamaConfig& config) {
  using In = LlamaIn;
  using Out = LlamaOut;
  const std::size_t width = config.width, intermediate = config.intermediate_width();
  const double std = config.standard_deviation, residual_std = std / std::sqrt(2.0 * double(config.layers));
  const auto mlp = context / "mlp";
  const bool lean = config.recompute == Recomputation::selective;
  Sequential block(
      llama_attention(context, config),
      Residual(Sequential(
          RecomputeInput(
              Sequential(RmsNorm(context / "post_attention_layernorm", width, config.epsilon), EnterParallelRegion<tp>{}),
              Branch(In(mlp / "gate_proj", width, intermediate, {std}), In(mlp / "up_proj", width, intermediate, {std})), lean),
          RecomputeInput(SwiGlu{}, Out(mlp / "down_proj", intermediate, width, {residual_std}), lean),
          Dropout(mlp / "dropout", config.dropout))));
  return Recompute(std::move(block), config.recompute == Recomputation::full);
}

}  // namespace detail

/// S: float, bfloat16 (parameters and activations; sums, norms and softmax statistics in float) or double.
template <weft::detail::Real S>
struct BasicLlama {
  using scalar = S;
  using Config = LlamaConfig;
  using Front = Embedding;
  using Block = detail::LlamaBlock;
  using Back = LanguageHead<RmsNorm>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static std::size_t sequence(const Config& config) { return config.sequence; }
  WEFT_COLD static void check(const Config& config, const ModelDegrees& degrees) {
    weft::detail::require_sizes(config.vocabulary, config.width, config.heads);
    weft::detail::require_heads(detail::llama_heads(config), degrees.tp);
    weft::detail::require_context(detail::llama_heads(config), config.sequence, degrees);
    if (config.intermediate_width() % degrees.tp != 0)
      throw_error<LayoutError>({"intermediate(", config.intermediate_width(), ") % tp(", degrees.tp, ") != 0"});
  }
  template <class Context>
  static Front make_front(const Context& context, const Config& config) {
    return Embedding(context / "model.embed_tokens", config.vocabulary, config.width, config.standard_deviation);
  }
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return detail::llama_block(context / "model.layers" / weft::detail::joined({index}), config);
  }
  template <class Context>
  static Back make_back(const Context& context, const Config& config, Front* here) {
    const auto name = [&] { return config.tied ? context / "model.embed_tokens" : context / "lm_head"; };
    return Back(
        RmsNorm(context / "model.norm", config.width, config.epsilon),
        config.tied && here ? here->table : Embedding(name(), config.vocabulary, config.width, config.standard_deviation).table);
  }
};

using Llama = BasicLlama<float>;

}  // namespace weft::models
