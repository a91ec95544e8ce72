// SPDX-License-Identifier: Apache-2.0
#pragma once
// The joining of words, and the filter for unsafe bytes. Definitions for core/text.hpp.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

WEFT_INLINE void Word::append_to(std::string& text) const {
  if (letters_ != nullptr && letters_ != with_sign) {
    text.append(letters_, value_ == ends_with_zero ? std::char_traits<char>::length(letters_) : value_);
    return;
  }
  const bool negative = letters_ == with_sign && static_cast<std::int64_t>(value_) < 0;
  char digits[20];
  std::size_t first = sizeof digits;
  std::uint64_t rest = negative ? 0 - value_ : value_;
  do digits[--first] = char('0' + rest % 10);
  while ((rest /= 10) != 0);
  if (negative) text.push_back('-');
  text.append(digits + first, sizeof digits - first);
}

WEFT_COLD WEFT_INLINE void append_to(std::string& text, Words words) {
  for (const Word& word : words) word.append_to(text);
}

WEFT_COLD WEFT_INLINE std::string joined(Words words) {
  std::string text;
  append_to(text, words);
  return text;
}

/// The length of the first UTF-8 character if a terminal shows it unchanged; 0 if there is none.
WEFT_COLD WEFT_INLINE std::size_t shown_character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(bytes[i])); };
  if (at(0) < 0x80) return at(0) >= ' ' && at(0) <= '~' ? 1 : 0;
  const std::size_t length = at(0) >= 0xf0 ? 4 : at(0) >= 0xe0 ? 3 : 2;
  if (at(0) < 0xc2 || at(0) > 0xf4 || bytes.size() < length) return 0;
  std::uint32_t code = at(0) & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  const bool longer = code < (length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u), surrogate = code >= 0xd800 && code < 0xe000;
  const bool control = code < 0xa0 || code == 0xad || code == 0x61c || code == 0xfeff || (code >= 0x2000 && code < 0x2010) ||
                       (code >= 0x2028 && code < 0x2030) || (code >= 0x205f && code < 0x2070) || code >= 0xe0000;
  return longer || surrogate || control ? 0 : length;
}

WEFT_COLD WEFT_INLINE std::string shown(std::string_view bytes, std::size_t most) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = shown_character(bytes.substr(at));
    if (at + (length == 0 ? 1 : length) > most) return text + "...";
    text += length == 0 ? std::string_view("?") : bytes.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return text;
}

}  // namespace weft::detail
