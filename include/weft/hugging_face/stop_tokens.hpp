// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tokens that end a model's texts, from its folder.
//
//   generate(model, prompts, {.stop = hugging_face::stop_tokens("llama")});

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <weft/checkpoint/folder.hpp>
#include <weft/hugging_face/fields.hpp>

namespace weft::hugging_face {

/// `eos_token_id`, one number or several, of generation_config.json, or of config.json if the former has none. Empty if neither
/// has one. Throws Error if a file is damaged.
inline std::vector<std::int32_t> stop_tokens(const std::string& folder,
                                             checkpoint::FileSystem& system = checkpoint::FileSystem::system()) {
  std::vector<std::int32_t> tokens;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = checkpoint::detail::in_folder(folder, name);
    if (std::string(name) == "generation_config.json" && !checkpoint::detail::is_there(path)) continue;
    const nlohmann::json json = detail::read_json(path, system);
    if (!json.contains("eos_token_id") || json.at("eos_token_id").is_null()) continue;
    const nlohmann::json& said = json.at("eos_token_id");
    for (const nlohmann::json& one : said.is_array() ? said : nlohmann::json::array({said})) {
      if (!one.is_number_unsigned() || one.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int32_t>::max()))
        detail::refuse({path},
                       {"eos_token_id is ", detail::shown(said.dump()), ": a token's number, or several in a list, are meant"});
      tokens.push_back(one.get<std::int32_t>());
    }
    return tokens;
  }
  return tokens;
}

}  // namespace weft::hugging_face
