// SPDX-License-Identifier: Apache-2.0
#pragma once
// UTF-8 in a stream of bytes: complete characters, incomplete characters, and invalid bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::hugging_face::detail {

enum class Utf8 : std::uint8_t { character, incomplete, wrong };

struct Utf8Sequence {
  Utf8 is;
  std::size_t length;  ///< of the character, or of its longest valid prefix: bytes that become one U+FFFD
};

/// The sequence at the start of `bytes`, which must not be empty (Unicode, section 3.9, tables 3-7 and 3-8).
inline Utf8Sequence utf8_sequence(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {Utf8::character, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8::wrong, 1};
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points above 0x10ffff.
  unsigned char low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8::incomplete, i};
    if (at(i) < low || at(i) > high) return {Utf8::wrong, i};
    low = 0x80, high = 0xbf;
  }
  return {Utf8::character, length};
}

/// The position of the first byte that is not valid UTF-8, or npos.
inline std::size_t not_utf8_at(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t eight;
    if (at + sizeof eight <= text.size() &&
        (std::memcpy(&eight, text.data() + at, sizeof eight), (eight & 0x8080808080808080u) == 0)) {
      at += sizeof eight;
      continue;
    }
    const Utf8Sequence sequence = utf8_sequence(text.substr(at));
    if (sequence.is != Utf8::character) return at;
    at += sequence.length;
  }
  return std::string_view::npos;
}

/// The code point at the start of a valid, non-empty UTF-8 text.
inline std::uint32_t code_point(std::string_view text) {
  const auto at = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = at(0);
  if (lead < 0x80) return lead;
  if (lead < 0xe0) return (lead & 0x1f) << 6 | (at(1) & 0x3f);
  if (lead < 0xf0) return (lead & 0x0f) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f);
  return (lead & 0x07) << 18 | (at(1) & 0x3f) << 12 | (at(2) & 0x3f) << 6 | (at(3) & 0x3f);
}
inline constexpr bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// Appends the bytes to `text` as UTF-8, with U+FFFD for invalid bytes. If `more` bytes may follow, an incomplete character at
/// the end stays in `pending`.
inline void append_characters(std::string& text, std::string& pending, std::string_view bytes, bool more) {
  std::string joined;
  if (!pending.empty()) bytes = joined = pending + std::string(bytes);
  pending.clear();
  while (!bytes.empty()) {
    const Utf8Sequence sequence = utf8_sequence(bytes);
    if (sequence.is == Utf8::character) text += bytes.substr(0, sequence.length);
    else if (sequence.is == Utf8::incomplete && more) pending = bytes;
    else text += "\xef\xbf\xbd";
    bytes.remove_prefix(sequence.length);
  }
}

}  // namespace weft::hugging_face::detail
