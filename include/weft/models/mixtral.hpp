// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mixtral (arXiv:2401.04088), and Qwen3-MoE with Qwen3's attention: Llama's blocks with a mixture of SwiGLU experts instead of
// the MLP. Parameters have the names and shapes of Hugging Face's Mixtral, so checkpoints need no conversion.
//
//   DataParallel<ExpertParallel<models::Mixtral>> model(mesh, {.experts = 8, .top_k = 2});   // Mesh<dp, ep, edp>

#include <string>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/models/llama.hpp>
#include <weft/nn/mixture.hpp>

namespace weft::models {

/// The sizes and options of a Mixtral.
struct MixtralConfig {
  std::size_t vocabulary = 256;
  std::size_t layers = 6;
  std::size_t width = 384;
  std::size_t heads = 6;
  std::size_t kv_heads = 0;      ///< 0: as many as heads
  std::size_t intermediate = 0;  ///< inner width of an expert; 0: 8/3 width, rounded up to a multiple of 64
  std::size_t sequence = 256;
  std::size_t experts = 8;
  std::size_t top_k = 2;  ///< experts per token
  nn::Scores scores = nn::Scores::after_top_k;
  double auxiliary_loss = 0.001;
  double z_loss = 0;
  double bias_rate = 0;        ///< step of loss-free balancing
  double capacity_factor = 0;  ///< with `drop`
  nn::Drop drop = nn::Drop::none;
  nn::Level level = nn::Level::sequence;  ///< of capacity and auxiliary loss
  double dropout = 0;                     ///< after attention and mixture
  double epsilon = 1e-5;
  double rope_base = 1e6;
  double standard_deviation = 0.02;
  bool tied = false;                              ///< the last projection shares the embedding's table
  Recomputation recompute = Recomputation::none;  ///< the activations that backward recomputes; selective: those of attention
  AttentionMask mask = {};                        ///< causal, without a window
  AttentionOptions attention = {};
  std::vector<bool> window_layers = {};  ///< layers that have the mask's window; empty: all
  double router_jitter = 0;  ///< noise of the router's input in training, which weft does not have: training refuses it
  FolderFiles files = {};    ///< texts of the folder from which the config was read
};

/// The Llama config without this Mixtral's mixtures.
inline LlamaConfig llama_of(const MixtralConfig& c) {
  return {.vocabulary = c.vocabulary,
          .layers = c.layers,
          .width = c.width,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .intermediate = c.intermediate,
          .sequence = c.sequence,
          .dropout = c.dropout,
          .epsilon = c.epsilon,
          .rope_base = c.rope_base,
          .standard_deviation = c.standard_deviation,
          .tied = c.tied,
          .recompute = c.recompute,
          .mask = c.mask,
          .attention = c.attention,
          .window_layers = c.window_layers};
}

namespace detail {

/// y + mixture(norm(y)) of y = x + branch.
class MixtralMlp : public Module<MixtralMlp> {
 public:
  template <class Context>
  WEFT_COLD MixtralMlp(const Context& context, const MixtralConfig& config)
      : norm_(context / "post_attention_layernorm", config.width, config.epsilon),
        mixture_(context / "block_sparse_moe", config.width, llama_of(config).intermediate_width(), router(config),
                 config.standard_deviation, llama_residual_deviation(llama_of(config))),
        dropout_(context / "block_sparse_moe" / "dropout", config.dropout) {}

  auto forward(const auto& x, const auto& branch) const {
    const auto [y, normed] = add_norm(norm_, x, branch);
    return y + to_layout_of(y, dropout_(mixture_(normed)));
  }

 private:
  static RouterOptions router(const MixtralConfig& config) {
    return {.experts = config.experts,
            .top_k = config.top_k,
            .scores = config.scores,
            .auxiliary_loss = config.auxiliary_loss,
            .z_loss = config.z_loss,
            .bias_rate = config.bias_rate,
            .capacity_factor = config.capacity_factor,
            .drop = config.drop,
            .level = config.level};
  }

  RmsNorm norm_;
  Mixture mixture_;
  Dropout dropout_;
};

}  // namespace detail

/// S: float, bfloat16 (parameters and activations; the router, sums and norms in float) or double. Adapters: Lora, applied to the
/// attention layers in ModelOptions::lora.
template <weft::detail::Real S, class Adapters = NoAdapters>
struct BasicMixtral {
  using scalar = S;
  using Config = MixtralConfig;
  using adapters = Adapters;
  using Front = Embedding;
  using Block = detail::DecoderBlock<detail::MixtralMlp, MixtralConfig, Adapters>;
  using Back = LanguageHead<RmsNorm>;
  using Dense = BasicLlama<S>;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t experts(const Config& config) { return config.experts; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static std::size_t sequence(const Config& config) { return config.sequence; }
  static void check(const Config& config, const ModelDegrees& degrees) {
    const LlamaConfig llama = llama_of(config);
    detail::require_llama(llama, degrees);
    weft::detail::require_experts(config.experts, llama.intermediate_width(), degrees.ep, degrees.etp);
  }
  /// Throws UsageError if training would ignore a value of this config.
  static void require_trainable(const Config& config) {
    if (config.router_jitter != 0)
      throw_error<UsageError>({"router_jitter_noise is ", std::to_string(config.router_jitter),
                               ": weft trains without noise in the router. Set it to 0 (config.router_jitter, or "
                               "router_jitter_noise in config.json) to train so; a model that is only evaluated may keep it"});
  }
  template <class Context>
  static Front make_front(const Context& context, const Config& config) {
    return Dense::make_front(context, llama_of(config));
  }
  template <class Context>
  static Block make_block(const Context& context, const Config& config, std::size_t index) {
    return Block(context / "model.layers" / weft::detail::joined({index}), llama_of(config), config,
                 detail::layer_mask(config, index));
  }
  template <class Context>
  static Back make_back(const Context& context, const Config& config, Front* here) {
    return Dense::make_back(context, llama_of(config), here);
  }
};

/// BasicMixtral in float.
using Mixtral = BasicMixtral<float>;

}  // namespace weft::models
