// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/lora_options.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <cmath>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/engine/name_pattern.hpp>

namespace weft {

WEFT_COLD WEFT_INLINE void LoraOptions::check() const {
  if (rank == 0) return;
  if (!std::isfinite(alpha)) throw_error<UsageError>({"ModelOptions::lora.alpha is not a finite number"});
  if (!(dropout >= 0 && dropout < 1))
    throw_error<UsageError>({"ModelOptions::lora.dropout ", std::to_string(dropout), " is not in [0, 1)"});
  if (match.empty())
    throw_error<UsageError>(
        {"ModelOptions::lora.rank is ", rank, ", and lora.match names no layers: {\"*\"} are all that take one"});
}

namespace detail {

WEFT_COLD WEFT_INLINE bool takes_adapter(const LoraOptions* options, std::string_view layer) {
  if (options == nullptr || options->rank == 0) return false;
  const std::vector<std::string_view> patterns(options->match.begin(), options->match.end());
  return matches_any(patterns, layer);
}

WEFT_COLD WEFT_INLINE void require_adapters(const std::vector<std::string>& parameters, const LoraOptions& options) {
  std::vector<std::string> adapted;
  for (const std::string& name : parameters)
    if (name.ends_with(lora_down)) adapted.push_back(name.substr(0, name.size() - lora_down.size()));
  const std::vector<std::string_view> patterns(options.match.begin(), options.match.end());
  if (!adapted.empty()) return require_found(found_by(patterns, adapted), adapted, patterns, "ModelOptions::lora.match");
  throw_error<UsageError>(
      {"ModelOptions::lora.match ", patterns.front(),
       " names no layer that takes an adapter: the model's type names those that do, such as models::BasicLlama<float, Lora>"});
}

}  // namespace detail

}  // namespace weft
