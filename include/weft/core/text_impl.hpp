// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for core/text.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

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

WEFT_COLD WEFT_INLINE std::string shown(std::string_view bytes, std::size_t most) {
  std::string text(bytes.substr(0, most));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return bytes.size() > most ? text + "..." : text;
}

}  // namespace weft::detail
