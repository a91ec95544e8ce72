// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of low-rank adapters (LoRA: Hu et al., arXiv:2106.09685) for a model whose type has layers that take them.
//
//   DataParallel<models::BasicLlama<float, Lora>> model(mesh, config, {.lora = {.rank = 8, .match = {"*.q_proj", "*.v_proj"}}});

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

namespace detail {
// A function, because g++ 12 does not survive a braced list of strings here where a template fills in ModelOptions.
inline std::vector<std::string> every_layer() { return {"*"}; }
}  // namespace detail

/// Options of low-rank adapters (nn/lora.hpp).
struct LoraOptions {
  std::size_t rank = 0;  ///< r of the adapters; 0: there are none, and every layer is as without them
  double alpha = 16;     ///< an adapter's output is multiplied by alpha / rank
  double dropout = 0;    ///< of an adapter's input, in training
  /// The layers, by their global names; `*` matches any characters, dots as well.
  std::vector<std::string> match = detail::every_layer();
  double up_deviation = 0;  ///< of B's first values; 0, as in the paper: the model begins as it was

  double scale() const { return rank == 0 ? 0 : alpha / double(rank); }
  /// Throws UsageError for numbers that cannot be.
  void check() const;
};

namespace detail {

/// The adapter's parameters are named as PEFT does: "q_proj.lora_A.weight" beside "q_proj.weight".
inline constexpr std::string_view lora_down = ".lora_A.weight", lora_up = ".lora_B.weight";
inline bool is_adapter(std::string_view parameter) { return parameter.ends_with(lora_down) || parameter.ends_with(lora_up); }
/// Whether the options, which may be null, ask for an adapter beside this layer.
bool takes_adapter(const LoraOptions* options, std::string_view layer);
/// Throws UsageError for a pattern of which no layer has an adapter; `parameters` are the names of the whole model's.
void require_adapters(const std::vector<std::string>& parameters, const LoraOptions& options);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/engine/lora_options_impl.hpp>
#endif
