// SPDX-License-Identifier: Apache-2.0
#pragma once
// Llama (arXiv:2302.13971) and similar models: pre-norm blocks with RMS norm, rotary positions, grouped-query attention and
// SwiGLU. The config has the differences: scaled rotary positions (Llama 3.1), biases (Qwen2), a norm of queries and keys and a
// separate head width (Qwen3). Parameters have Hugging Face's names and shapes, so checkpoints need no conversion.
//
//   DataParallel<TensorParallel<models::Llama>> model(mesh, {.layers = 12, .width = 768, .heads = 12, .kv_heads = 4});
//   models::LlamaConfig qwen3{.kv_heads = 2, .attention = {.head_width = 128, .query_key_norm = true}};

#include <cmath>
#include <optional>
#include <tuple>
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
#include <weft/nn/linear.hpp>
#include <weft/nn/lora.hpp>
#include <weft/nn/loss.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/variables.hpp>

namespace weft::models {

/// The projections of an attention that have a bias.
enum class AttentionBias { none, query_key_value, all };

/// Options of attention that differ between Llama-like models.
struct AttentionOptions {
  std::size_t head_width = 0;  ///< 0: width / heads
  AttentionBias bias = AttentionBias::none;
  bool query_key_norm = false;    ///< HeadRmsNorm of queries and keys before their rotation
  RopeScaling rope_scaling = {};  ///< none
};

/// The sizes and options of a Llama.
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
  FolderFiles files = {};                ///< texts of the folder from which the config was read

  /// Width of the MLP between its projections: `intermediate`, or, if that is 0, 8/3 of the width rounded up to a multiple of 64.
  std::size_t intermediate_width() const { return intermediate ? intermediate : (width * 8 / 3 + 63) / 64 * 64; }
};

namespace detail {

inline AttentionHeads llama_heads(const LlamaConfig& config) {
  return {config.heads, config.kv_heads ? config.kv_heads : config.heads,
          config.attention.head_width ? config.attention.head_width : config.width / config.heads};
}
/// Throws LayoutError for sizes that make no valid Llama.
WEFT_COLD inline void require_llama(const LlamaConfig& config, const ModelDegrees& degrees) {
  weft::detail::require_sizes(config.vocabulary, config.width, config.attention.head_width ? 1 : config.heads);
  if (config.heads == 0) throw_error<LayoutError>({"heads(0) must be at least 1"});
  weft::detail::require_heads(llama_heads(config), degrees.tp);
  weft::detail::require_context(llama_heads(config), config.sequence, degrees);
  require_window_layers(config);
}

inline double llama_residual_deviation(const LlamaConfig& config) {
  return config.standard_deviation / std::sqrt(2.0 * double(config.layers));
}

/// attention(norm(x)), placed as x.
template <class Adapters>
class LlamaAttention : public Module<LlamaAttention<Adapters>> {
  using LlamaIn = typename Adapters::template linear<Linear<Column>>;  // with a bias if the config has one
  using LlamaOut = typename Adapters::template linear<Linear<Row>>;

 public:
  template <class Context>
  WEFT_COLD LlamaAttention(const Context& context, const LlamaConfig& config, const AttentionMask& mask)
      : LlamaAttention(context, context / "self_attn", config, mask, llama_heads(config)) {}

  auto forward(const auto& x) const {
    const auto inside = recompute_ ? recompute([this](const auto& in) { return this->entered(in); }, x) : entered(x);
    const auto value = value_(inside), key = normed(key_norm_, key_(inside)), query = normed(query_norm_, query_(inside));
    return to_layout_of(x, dropout_(out_(attention_(rotary_(std::tuple(query, key, value))))));
  }

 private:
  // norm(x) on every rank of tp, where the three projections share one all-reduce in backward.
  auto entered(const auto& x) const { return to<Replicated<tp>>(norm_(x)); }
  static auto normed(const std::optional<HeadRmsNorm>& norm, const auto& x) { return norm ? (*norm)(x) : x; }
  template <class Context>
  LlamaAttention(const Context& context, const Context& here, const LlamaConfig& config, const AttentionMask& mask,
                 const AttentionHeads& heads)
      : recompute_(config.recompute == Recomputation::selective),
        norm_(context / "input_layernorm", config.width, config.epsilon),
        query_(in(here / "q_proj", config, heads.query, heads)),
        key_(in(here / "k_proj", config, heads.key_value, heads)),
        value_(in(here / "v_proj", config, heads.key_value, heads)),
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

  bool recompute_;
  RmsNorm norm_;
  LlamaIn query_, key_, value_;
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
      : recompute_(config.recompute == Recomputation::selective),
        norm_(context / "post_attention_layernorm", config.width, config.epsilon),
        gate_(context / "mlp" / "gate_proj", config.width, config.intermediate_width(), {config.standard_deviation}),
        up_(context / "mlp" / "up_proj", config.width, config.intermediate_width(), {config.standard_deviation}),
        down_(context / "mlp" / "down_proj", config.intermediate_width(), config.width, {llama_residual_deviation(config)}),
        dropout_(context / "mlp" / "dropout", config.dropout) {}

  auto forward(const auto& x, const auto& branch) const {
    if (!recompute_) {
      const auto [y, normed] = add_norm(norm_, x, branch);
      const auto inside = to<Replicated<tp>>(normed);  // where both projections share one all-reduce in backward
      const auto up = up_(inside), gate = gate_(inside);
      return y + to_layout_of(y, dropout_(down_(SwiGlu{}(std::tuple(gate, up)))));
    }
    const auto y = x + branch;
    const auto inside = recompute([this](const auto& in) { return to<Replicated<tp>>(norm_(in)); }, y);
    const auto up = up_(inside), gate = gate_(inside);
    const auto active = recompute([](const auto& g, const auto& u) { return SwiGlu{}(std::tuple(g, u)); }, gate, up);
    return y + to_layout_of(y, dropout_(down_(active)));
  }

 private:
  bool recompute_;
  RmsNorm norm_;
  LlamaIn gate_, up_;
  LlamaOut down_;
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

/// S: float, bfloat16 (parameters and activations; sums, norms and softmax statistics in float) or double. Adapters: Lora,
/// applied to the layers in ModelOptions::lora.
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

/// BasicLlama in float.
using Llama = BasicLlama<float>;

}  // namespace weft::models
