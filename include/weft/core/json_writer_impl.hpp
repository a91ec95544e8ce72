// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for core/json_writer.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <charconv>
#include <cmath>

#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void JsonWriter::separate() {
  if (!after_key_) {
    if (!first_) text_ += ',';
    if (line_) text_ += '\n';
    else if (!first_) text_ += ' ';
    line_ = false;
  }
  first_ = after_key_ = false;
}
WEFT_COLD WEFT_INLINE void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  for (const char c : shown(text, text.size())) {
    if (c == '"' || c == '\\') text_ += '\\';
    text_ += c;
  }
  text_ += '"';
}

WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::begin(char open, char close) {
  separate();
  text_ += open;
  open_ += close;
  first_ = true;
  return *this;
}
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::end() {
  if (line_) text_ += '\n';
  text_ += open_.back();
  open_.pop_back();
  first_ = line_ = false;
  return *this;
}
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::word(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::whole(std::int64_t number) { return word(joined({number})); }
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::whole(std::uint64_t number) { return word(joined({number})); }
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  char text[40];
  const auto result = digits_ >= 17 ? std::to_chars(text, text + sizeof text, number)
                                    : std::to_chars(text, text + sizeof text, number, std::chars_format::general, digits_);
  return word({text, std::size_t(result.ptr - text)});
}
WEFT_COLD WEFT_INLINE JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
  return *this;
}

}  // namespace weft::detail
