// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/layer_error.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <stdexcept>

#include <weft/comm/errors.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/engine/layer_error.hpp>
#include <weft/engine/parameter_names.hpp>

namespace weft::detail {

// The text with the path in front and the names of operands relative to it; unchanged if a layer inside has added its own.
WEFT_COLD WEFT_INLINE std::string with_path(std::string_view text, std::string_view path, Pass pass) {
  constexpr std::string_view weft = "weft: ", backward = "backward of ";
  std::string_view words = text;
  if (words.starts_with(weft)) words.remove_prefix(weft.size());
  std::string_view place = words;
  if (place.starts_with(backward)) place.remove_prefix(backward.size());
  if (place.starts_with(path) && place.size() > path.size() && (place[path.size()] == '.' || place[path.size()] == ':'))
    return std::string(text);
  std::string out = joined({text.substr(0, text.size() - words.size()), pass == Pass::backward ? backward : "", path, ": "});
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool begins = at > 0 && (words[at - 1] == '(' || (at > 1 && words.substr(at - 2, 2) == ", "));
    const std::string_view rest = words.substr(at);
    if (begins && rest.starts_with(path) && rest.size() > path.size() && rest[path.size()] == '.') at += path.size();
    else out += words[at];
  }
  return out;
}

WEFT_COLD WEFT_INLINE void add_path(std::string_view path, Pass pass) noexcept {
  if (path.empty()) return;
  try {
    throw;
  } catch (const CommunicationError&) {
  } catch (const InterruptedError&) {
  } catch (std::runtime_error& error) {
    error = std::runtime_error(with_path(error.what(), path, pass));  // the message only: the object keeps its type and members
  } catch (std::logic_error& error) {
    error = std::logic_error(with_path(error.what(), path, pass));
  } catch (...) {}
}

WEFT_COLD WEFT_INLINE void add_holder(const void* layer, std::size_t bytes, Pass pass) noexcept {
  add_path(path_of_holder(layer, bytes), pass);
}

WEFT_OUT_OF_LINE WEFT_INLINE std::string_view LayerPath::found(const void* layer, std::size_t bytes) const {
  if (path_ == nullptr) path_ = std::make_shared<const std::string>(path_of_holder(layer, bytes));
  return *path_;
}

}  // namespace weft::detail
