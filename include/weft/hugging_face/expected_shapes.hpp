// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of a model's matrices by its config, compared with the headers of a folder's weights before anything is allocated.
// So the sizes of the files bound the numbers that a config.json may contain.
//
//   require_shapes(folder, config);   // throws for a vocab_size of 4e7 and an embedding of 256 rows

#include <cstddef>
#include <string>
#include <vector>

#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/core/checked.hpp>
#include <weft/core/text.hpp>
#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/weights.hpp>

namespace weft::hugging_face::detail {

/// Calls f(name, shape) for each matrix of a model. Vectors are not listed: each has the length of a matrix side.
template <class F>
void for_each_matrix(const models::GptConfig& c, F&& f) {
  const auto heads = models::detail::gpt_heads(c);
  const std::size_t w = c.width, kv = weft::detail::checked_multiply(2 * heads.key_value, heads.width, "config.json: a width");
  f("transformer.wte.weight", {c.vocabulary, w});
  f("transformer.wpe.weight", {c.sequence, w});
  if (!c.tied) f("lm_head.weight", {c.vocabulary, w});
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    const std::string at = weft::detail::joined({"transformer.h.", layer, "."});
    f(at + "attn.c_attn.weight", {w, w + kv});
    f(at + "attn.c_proj.weight", {w, w});
    f(at + "mlp.c_fc.weight", {w, c.intermediate_width()});
    f(at + "mlp.c_proj.weight", {c.intermediate_width(), w});
  }
}
/// The matrices of Llama-like models except the MLP's, for which mlp(name of the layer) is called.
template <class F, class Mlp>
void for_each_matrix(const models::LlamaConfig& c, F&& f, Mlp&& mlp) {
  const auto heads = models::detail::llama_heads(c);
  const std::size_t w = c.width,
                    q = weft::detail::checked_multiply(heads.query, heads.width, "config.json: the width of all heads"),
                    kv = weft::detail::checked_multiply(heads.key_value, heads.width, "config.json: the width of all heads");
  f("model.embed_tokens.weight", {c.vocabulary, w});
  if (!c.tied) f("lm_head.weight", {c.vocabulary, w});
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    const std::string at = weft::detail::joined({"model.layers.", layer, "."});
    f(at + "self_attn.q_proj.weight", {q, w});
    f(at + "self_attn.k_proj.weight", {kv, w});
    f(at + "self_attn.v_proj.weight", {kv, w});
    f(at + "self_attn.o_proj.weight", {w, q});
    mlp(at);
  }
}
template <class F>
void for_each_matrix(const models::LlamaConfig& c, F&& f) {
  const std::size_t inner = c.intermediate_width();
  for_each_matrix(c, f, [&](const std::string& at) {
    f(at + "mlp.gate_proj.weight", {inner, c.width});
    f(at + "mlp.up_proj.weight", {inner, c.width});
    f(at + "mlp.down_proj.weight", {c.width, inner});
  });
}
template <class F>
void for_each_matrix(const models::MixtralConfig& c, F&& f) {
  const std::size_t inner = models::llama_of(c).intermediate_width();
  for_each_matrix(models::llama_of(c), f, [&](const std::string& at) {
    f(at + "block_sparse_moe.gate.weight", {c.experts, c.width});
    for (std::size_t expert = 0; expert < c.experts; ++expert) {
      const std::string of = weft::detail::joined({at, "block_sparse_moe.experts.", expert, "."});
      f(of + "w1.weight", {inner, c.width});
      f(of + "w3.weight", {inner, c.width});
      f(of + "w2.weight", {c.width, inner});
    }
  });
}

/// Throws Error if the folder has weights, and a matrix of the config is missing or has another shape. Reads only headers.
template <class Config>
void require_shapes(const std::string& folder, const Config& config, FileSystem& system) {
  if (!checkpoint::detail::is_there(checkpoint::detail::in_folder(folder, weights_name)) &&
      !checkpoint::detail::is_there(checkpoint::detail::in_folder(folder, shards_name)))
    return;  // only a config, to train a new model
  const Weights weights = Weights::open(folder, model_of<Config>(), config.tied, system);
  for_each_matrix(config, [&](const std::string& name, const std::vector<std::size_t>& shape) {
    const Weight* const weight = weights.find(name);
    if (weight == nullptr)
      refuse({folder, name}, {"is not among the weights, and config.json has it, as ", checkpoint::detail::shape_text(shape)});
    if (weight->shape != shape)
      refuse({weights.path(*weight), name}, {"is ", checkpoint::detail::shape_text(weight->shape), ", and ",
                                             checkpoint::detail::shape_text(shape), " by config.json"});
  });
}

}  // namespace weft::hugging_face::detail
