// SPDX-License-Identifier: Apache-2.0
#pragma once
// Llama (arXiv:2302.13971) and its relatives: pre-norm blocks with RMS norm, rotary positions, grouped-query attention and
// SwiGLU. What they differ in are numbers of the config: scaled rotary positions (Llama 3.1), biases (Qwen2), a norm of queries
// and keys and a head width of its own (Qwen3). Parameters have Hugging Face's names and shapes, so a checkpoint needs no
// conversion.
//
//   DataParallel<TensorParallel<models::Llama>> model(mesh, {.layers = 12, .width = 768, .heads = 12, .kv_heads = 4});
//   models::LlamaConfig qwen3{.kv_heads = 2, .attention = {.head_width = 128, .query_key_norm = true}};

#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <weft/autograd/model.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/recompute_call.hpp>
#include <weft/core/text.hpp>
#include <weft/models/config_parts.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/call_on_sum.hpp>
#include <weft/nn/combinators.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/embedding.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/lora.hpp>
#include <weft/nn/loss.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/recompute.hpp>
#include <weft/operations/variables.hpp>

namespace weft::models {

/// The projections of an attention that have a bias.
enum class AttentionBias { none, query_key_value, all };

/// What the attentions of Llama's relatives differ in.
struct AttentionOptions {
  std::size_t head_width = 0;  ///< 0: width / heads
  AttentionBias bias = AttentionBias::none;
  bool query_key_norm = false;    ///< HeadRmsNorm of queries and keys, in front of their rotation
  RopeScaling rope_scaling = {};  ///< none
};

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
  AttentionOptions attention = {};
  std::vector<bool> window_layers = {};  ///< layers that have the mask's window; empty: all
  FolderFiles files = {};                ///< of the folder from which it was read

  /// Width of the MLP between its projections: `intermediate`, or if that is 0, 8/3 of the width in steps of 64.
  std::size_t intermediate_width() const { return intermediate ? intermediate : (width * 8 / 3 + 63) / 64 * 64; }
};

namespace detail {

inline AttentionHeads llama_heads(const LlamaConfig& config) {
  return {config.heads, config.kv_heads ? config.kv_heads : config.heads,
          config.attention.head_width ? config.attention.head_width : config.width / config.heads};
}
/// Throws LayoutError for sizes of which no Llama can be made.
WEFT_COLD inline void require_llama(const LlamaConfig& config, const ModelDegrees& degrees) {
  weft::detail::require_sizes(config.vocabulary, config.width, config.attention.head_width ? 1 : config.heads);
  if (config.heads == 0) throw_error<LayoutError>({"heads(0) must be at least 1"});
  weft::detail::require_heads(llama_heads(config), degrees.tp);
  weft::detail::require_context(llama_heads(config), config.sequence, degrees);
  require_window_layers(config);
}

using LlamaNorm = Sequential<RmsNorm, EnterParallelRegion<tp>>;

inline double llama_residual_deviation(const LlamaConfig& config) {
  return config.standard_deviation / std::sqrt(2.0 * double(config.layers));
}

/// attention(norm(x)), placed as x.
template <class Adapters>
class LlamaAttention : public Module<LlamaAttention<Adapters>> {
  using LlamaIn = typename Adapters::template linear<Linear<Column>>;  // with a bias if the config asks for it
  using LlamaOut = typename Adapters::template linear<Linear<Row>>;

 public:
  template <class Context>
  WEFT_COLD LlamaAttention(const Context& context, const LlamaConfig& config, const AttentionMask& mask)
      : LlamaAttention(context, context / "self_attn", config, mask, llama_heads(config)) {}

  auto forward(const auto& x) const { return to_layout_of(x, dropout_(out_(attention_(rotary_(normed(query_key_value_(x))))))); }

 private:
  template <class V>
  V normed(const V& in) const {
    if (!query_norm_) return in;
    return {(*query_norm_)(std::get<0>(in)), (*key_norm_)(std::get<1>(in)), std::get<2>(in)};
  }
  template <class Context>
  LlamaAttention(const Context& context, const Context& here, const LlamaConfig& config, const AttentionMask& mask,
                 const AttentionHeads& heads)
      : query_key_value_(
            LlamaNorm(RmsNorm(context / "input_layernorm", config.width, config.epsilon), EnterParallelRegion<tp>{}),
            Branch(in(here / "q_proj", config, heads.query, heads), in(here / "k_proj", config, heads.key_value, heads),
                   in(here / "v_proj", config, heads.key_value, heads)),
            config.recompute == Recomputation::selective),
        rotary_(heads.width, config.rope_base, config.attention.rope_scaling),
        attention_(here, heads, mask),
        out_(here / "o_proj", heads.query * heads.width, config.width,
             {llama_residual_deviation(config), cut(heads.query, heads), config.attention.bias == AttentionBias::all}),
        dropout_(here / "dropout", config.dropout) {
    if (!config.attention.query_key_norm) return;
    query_norm_.emplace(here / "q_norm", heads.width, config.epsilon);
    key_norm_.emplace(here / "k_norm", heads.width, config.epsilon);
  }
  template <class Context>
  static LlamaIn in(const Context& context, const LlamaConfig& config, std::size_t count, const AttentionHeads& heads) {
    return LlamaIn(context, config.width, count * heads.width,
                   {config.standard_deviation, cut(count, heads), config.attention.bias != AttentionBias::none});
  }
  static ParameterSharding cut(std::size_t count, const AttentionHeads& heads) { return {{{count * heads.width, count}}, false}; }

  RecomputeInput<LlamaNorm, Branch<LlamaIn, LlamaIn, LlamaIn>> query_key_value_;
  std::optional<HeadRmsNorm> query_norm_, key_norm_;
  RotaryPositions rotary_;
  Attention attention_;
  LlamaOut out_;
  Dropout dropout_;
};

/// y + mlp(norm(y)) of y = x + branch.
template <class Adapters>
class LlamaMlp : public Module<LlamaMlp<Adapters>> {
  using LlamaIn = typename Adapters::template linear<Linear<Column, StoredAs::out_in, false>>;
  using LlamaOut = typename Adapters::template linear<Linear<Row, StoredAs::out_in, false>>;

 public:
  template <class Context>
  WEFT_COLD LlamaMlp(const Context& context, const LlamaConfig& config)
      : gate_up_(
            LlamaNorm(RmsNorm(context / "post_attention_layernorm", config.width, config.epsilon), EnterParallelRegion<tp>{}),
            Branch(LlamaIn(context / "mlp" / "gate_proj", config.width, config.intermediate_width(), {config.standard_deviation}),
                   LlamaIn(context / "mlp" / "up_proj", config.width, config.intermediate_width(), {config.standard_deviation})),
            config.recompute == Recomputation::selective),
        down_(SwiGlu{},
              LlamaOut(context / "mlp" / "down_proj", config.intermediate_width(), config.width,
                       {llama_residual_deviation(config)}),
              config.recompute == Recomputation::selective),
        dropout_(context / "mlp" / "dropout", config.dropout) {}

  auto forward(const auto& x, const auto& branch) const {
    const auto [y, inside] = call_on_sum(gate_up_, x, branch);
    return y + to_layout_of(y, dropout_(down_(inside)));
  }

 private:
  RecomputeInput<LlamaNorm, Branch<LlamaIn, LlamaIn>> gate_up_;
  RecomputeInput<SwiGlu, LlamaOut> down_;
  Dropout dropout_;
};

/// Attention and an MLP or a mixture of experts.
template <class Mlp, class Config, class Adapters>
class DecoderBlock : public Module<DecoderBlock<Mlp, Config, Adapters>> {
 public:
  template <class Context>
  DecoderBlock(const Context& context, const LlamaConfig& llama, const Config& config, const AttentionMask& mask)
      : attention_(context, llama, mask), mlp_(context, config), recompute_(config.recompute == Recomputation::full) {}

  auto forward(const auto& x) const {
    return recompute_ ? recompute([this](const auto& y) { return this->block(y); }, x) : block(x);
  }

 private:
  auto block(const auto& x) const { return mlp_(x, attention_(x)); }

  LlamaAttention<Adapters> attention_;
  Mlp mlp_;
  bool recompute_;
};

}  // namespace detail

/// S: float, bfloat16 (parameters and activations; sums, norms and softmax statistics in float) or double. Adapters: Lora, for
/// those that ModelOptions::lora asks for.
template <weft::detail::Real S, class Adapters = NoAdapters>
struct BasicLlama {
  using scalar = S;
  using Config = LlamaConfig;
  using adapters = Adapters;
  using Front = Embedding;
  using Block = detail::DecoderBlock<detail::LlamaMlp<Adapters>, LlamaConfig, Adapters>;
  using Back = LanguageHead<RmsNorm>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static std::size_t sequence(const Config& config) { return config.sequence; }
  WEFT_COLD static void check(const Config& config, const ModelDegrees& degrees) {
    detail::require_llama(config, degrees);
    if (config.intermediate_width() % degrees.tp != 0)
      throw_error<LayoutError>({"intermediate(", config.intermediate_width(), ") % tp(", degrees.tp, ") != 0"});
  }
  template <class Context>
  static Front make_front(const Context& context, const Config& config) {
    return Embedding(context / "model.embed_tokens", config.vocabulary, config.width, config.standard_deviation);
  }
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return Block(context / "model.layers" / weft::detail::joined({index}), config, config, detail::layer_mask(config, index));
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
