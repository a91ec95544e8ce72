// SPDX-License-Identifier: Apache-2.0
#pragma once
// One JSON text, written member by member.
//
//   detail::JsonWriter json;
//   json.object().member("rank", 0).member("axis", "dp");
//   json.key("sizes").array().value(2).value(4).end();
//   json.end();
//   json.text();   // {"rank": 0, "axis": "dp", "sizes": [2, 4]}

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::detail {

class JsonWriter {
 public:
  /// `digits`: the significant digits of numbers with a fraction. 17: as many as read back the same number.
  explicit JsonWriter(int digits = 17) : digits_(digits) {}

  JsonWriter& object() { return begin('{', '}'); }
  JsonWriter& array() { return begin('[', ']'); }
  /// Ends the innermost object or array.
  JsonWriter& end();
  JsonWriter& key(std::string_view name);
  /// The next element begins on a line of its own.
  JsonWriter& line() {
    line_ = true;
    return *this;
  }

  JsonWriter& value(bool yes) { return word(yes ? "true" : "false"); }
  /// null if it is not finite.
  JsonWriter& value(double number);
  /// Bytes that are no visible UTF-8 become '?'.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <std::integral N>
  JsonWriter& value(N number) {
    return std::is_signed_v<N> ? whole(static_cast<std::int64_t>(number)) : whole(static_cast<std::uint64_t>(number));
  }
  JsonWriter& null() { return word("null"); }
  /// A complete JSON text.
  JsonWriter& json(std::string_view text) { return word(text); }

  template <class T>
  JsonWriter& member(std::string_view name, const T& element) {
    return key(name).value(element);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& begin(char open, char close);
  JsonWriter& word(std::string_view text);
  JsonWriter& whole(std::int64_t number);
  JsonWriter& whole(std::uint64_t number);
  /// Writes the separator between the last element and the next.
  void separate();
  void quote(std::string_view text);

  std::string text_, open_;  // open_: the brackets that are to come
  int digits_;
  bool first_ = true, line_ = false, after_key_ = false;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/core/json_writer_impl.hpp>
#endif
