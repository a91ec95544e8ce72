// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/parameter_names.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/live_parameters.hpp>
#include <weft/engine/parameter_names.hpp>
#include <weft/engine/parameter_state.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::string name_of_values(const void* data) {
  if (data == nullptr) return {};
  LiveParameters& all = live_parameters();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [address, thread] : all.threads) {
    if (thread != std::this_thread::get_id()) continue;  // another rank's, whose storage may change now
    const auto& state = *static_cast<const ParameterState*>(address);
    if (state.size() != 0 && state.storage().layer_value().get() == data) return state.name();
  }
  return {};
}

// The length of the path components that both begin with.
WEFT_INLINE std::size_t common_path(std::string_view a, std::string_view b) {
  std::size_t common = 0, at = 0;
  for (; at < a.size() && at < b.size() && a[at] == b[at]; ++at)
    if (a[at] == '.') common = at;
  const bool ends_a = at == a.size() && (at == b.size() || b[at] == '.'),
             ends_b = at == b.size() && at < a.size() && a[at] == '.';
  return ends_a || ends_b ? at : common;
}

WEFT_COLD WEFT_INLINE std::string path_of_holder(const void* object, std::size_t bytes) {
  LiveParameters& all = live_parameters();
  const std::scoped_lock lock(all.mutex);
  std::optional<std::string_view> path;
  // A handle is a pointer to the state. Any pointer-sized value that is the address of one counts as a handle.
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += alignof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(object) + at, sizeof(word));
    if (word == nullptr || !all.threads.contains(word)) continue;
    const std::string_view name = static_cast<const ParameterState*>(word)->name();
    const std::size_t dot = name.rfind('.');
    const std::string_view of_layer = name.substr(0, dot == std::string_view::npos ? 0 : dot);
    path = path ? path->substr(0, common_path(*path, of_layer)) : of_layer;
  }
  return std::string(path.value_or(std::string_view()));
}

}  // namespace weft::detail
