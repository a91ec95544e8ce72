// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text from the model, token by token. Random numbers are Philox's at (seed, position), so every rank draws the same token.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>

#include "../command_line.hpp"
#include "options.hpp"

namespace train_gpt {

/// Draws one index with probability softmax(logits / temperature).
inline std::int32_t draw(const std::vector<float>& logits, double temperature, std::uint64_t seed, std::uint64_t position) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> up_to(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) up_to[i] = sum += std::exp((double(logits[i]) - top) / temperature);
  const double at = sum * weft::Philox::uniform(weft::key_of(seed, weft::site_of("sample")), position);
  const auto found = std::upper_bound(up_to.begin(), up_to.end(), at);
  return std::int32_t(std::min<std::ptrdiff_t>(found - up_to.begin(), std::ptrdiff_t(logits.size()) - 1));
}

/// The tokens of --prompt: the bytes of a text, beside conversations the tokenizer's, or whole numbers below the vocabulary,
/// separated by commas or spaces. Throws UsageError.
inline std::vector<std::int32_t> prompt_of(const Options& o) {
  if (o.of_conversations()) return encoded(o, o.prompt);
  std::vector<std::int32_t> tokens;
  if (!o.of_tokens()) {
    for (const char c : o.prompt) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  return command_line::whole_numbers(
      o.program + ": --prompt", o.prompt,
      "beside token files a prompt is whole numbers below vocabulary(" + std::to_string(*o.vocabulary) + "), such as \"464 318\"",
      std::int32_t(*o.vocabulary - 1));
}

/// A sample as text: its bytes, the tokenizer's text, or its token numbers separated by spaces.
inline std::string text_of(const std::vector<std::int32_t>& tokens, const Options& o) {
  if (o.of_conversations()) return decoded(o, tokens);
  std::string text;
  for (const std::int32_t token : tokens)
    if (o.of_tokens()) text += (text.empty() ? "" : " ") + std::to_string(token);
    else text += static_cast<char>(token);
  return text;
}

/// Returns `tokens` and `more` tokens after them. `logits_of(tokens)` returns the logits after the last of at most `window`
/// tokens; `stop()` may end it early.
template <class Logits, class Stop>
std::vector<std::int32_t> sample(std::vector<std::int32_t> tokens, std::size_t more, std::size_t window, std::uint64_t seed,
                                 Logits&& logits_of, Stop&& stop) {
  constexpr double temperature = 0.8;  // a little below 1: fewer rare tokens, which a small model often chooses wrongly
  for (std::size_t i = 0; i < more && !stop(); ++i) {
    const std::size_t first = tokens.size() > window ? tokens.size() - window : 0;
    const std::vector<std::int32_t> seen(tokens.begin() + std::ptrdiff_t(first), tokens.end());
    tokens.push_back(draw(logits_of(seen), temperature, seed, i));
  }
  return tokens;
}

/// The number of bytes of the UTF-8 character at `at`; 0 if there is no valid one: neither overlong, nor half of a surrogate
/// pair, nor above U+10FFFF (The Unicode Standard, table 3-7).
inline std::size_t character(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t k) { return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : 0U; };
  const auto follows = [&](std::size_t k, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(k) >= low && byte(k) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF)
    return follows(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  if (lead >= 0xF0 && lead <= 0xF4)
    return follows(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

/// For a terminal and for JSON: bytes that are neither printable ASCII nor part of a whole UTF-8 character become '?'.
inline std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = character(text, i);
    const bool control =
        byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F control terminals
    const bool shown = (length > 1 && !control) || (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    out += shown ? text.substr(i, length) : "?";
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

}  // namespace train_gpt
