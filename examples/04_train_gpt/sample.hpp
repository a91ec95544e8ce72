// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text from the model, a byte at a time. Random numbers are Philox's at (seed, position), so every rank draws the same byte.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>

namespace train_gpt {

/// One index, with probability softmax(logits / temperature).
inline std::int32_t draw(const std::vector<float>& logits, double temperature, std::uint64_t seed, std::uint64_t position) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> up_to(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) up_to[i] = sum += std::exp((double(logits[i]) - top) / temperature);
  const double at = sum * weft::Philox::uniform(weft::key_of(seed, weft::site_of("sample")), position);
  const auto found = std::upper_bound(up_to.begin(), up_to.end(), at);
  return std::int32_t(std::min<std::ptrdiff_t>(found - up_to.begin(), std::ptrdiff_t(logits.size()) - 1));
}

/// `prompt` and `bytes` bytes after it. `logits_of(tokens)` gives the logits after the last of at most `window` tokens;
/// `stop()` may end it early.
template <class Logits, class Stop>
std::string sample(const std::string& prompt, std::size_t bytes, std::size_t window, std::uint64_t seed, Logits&& logits_of, Stop&& stop) {
  constexpr double temperature = 0.8;  // a little below 1: fewer of the rare bytes that a small model gets wrong
  std::string text = prompt;
  for (std::size_t i = 0; i < bytes && !stop(); ++i) {
    const std::size_t first = text.size() > window ? text.size() - window : 0;
    std::vector<std::int32_t> tokens;
    for (std::size_t at = first; at < text.size(); ++at) tokens.push_back(static_cast<unsigned char>(text[at]));
    text += static_cast<char>(draw(logits_of(tokens), temperature, seed, i));
  }
  return text;
}

/// For a terminal: bytes that are neither printable ASCII nor part of a whole UTF-8 character become '?'.
inline std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::size_t length = byte < 0x80 ? 1 : byte >= 0xC2 && byte < 0xE0 ? 2 : byte >= 0xE0 && byte < 0xF0 ? 3 : byte >= 0xF0 && byte < 0xF5 ? 4 : 0;
    for (std::size_t k = 1; k < length; ++k)
      if (i + k >= text.size() || (static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) length = 0;
    const bool shown = length > 1 || (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    out += length > 0 && shown ? text.substr(i, length) : "?";
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

}  // namespace train_gpt
