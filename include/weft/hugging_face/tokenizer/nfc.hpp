// SPDX-License-Identifier: Apache-2.0
#pragma once
// Unicode's normal form C, by utf8proc, with the same results as in `tokenizers` (unicode.hpp lists the differences).
//
//   nfc("e\u0301") == "\u00e9"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/hugging_face/tokenizer/unicode.hpp>
#include <weft/hugging_face/tokenizer/utf8.hpp>

namespace weft::hugging_face::detail {

class Nfc {
 public:
  /// The normal form of a UTF-8 text; the text itself if nothing can change.
  std::string_view operator()(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size() && stays(text[at])) ++at;
    if (at == text.size()) return text;
    out_.clear();
    while (!text.empty()) {
      // A run of ASCII, then a run of other characters. The latter includes the last ASCII character, which a mark may modify.
      std::size_t begin = 0;
      while (begin < text.size() && is_ascii(text[begin])) ++begin;
      std::size_t end = begin;
      bool same = true;
      while (end < text.size() && !is_ascii(text[end])) same = stays(text[end++]) && same;
      if (same) begin = end;
      else if (begin > 0) --begin;
      out_ += text.substr(0, begin);
      for (std::string_view run = text.substr(begin, end - begin); !run.empty();) run.remove_prefix(segment(run));
      text.remove_prefix(end);
    }
    return out_;
  }

 private:
  static bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }
  /// True if characters that begin with this byte, or contain it, are unchanged next to each other: ASCII, Latin up to U+02FF,
  /// Cyrillic up to U+047F, U+4000 to U+9FFF, Hangul syllables from U+B000 to U+CFFF.
  static bool stays(char byte) {
    const auto b = static_cast<unsigned char>(byte);
    return b < 0xcc || b == 0xd0 || b == 0xd1 || (b >= 0xe4 && b <= 0xe9) || b == 0xeb || b == 0xec;
  }

  /// Appends the normal form of the text before the next `newer_than_nfc` character, and that character. Returns the bytes
  /// consumed.
  std::size_t segment(std::string_view run) {
    std::size_t at = 0, length = 0;
    while (at < run.size()) {
      length = utf8_sequence(run.substr(at)).length;
      if (static_cast<unsigned char>(run[at]) >= 0xd7 && is_in(newer_than_nfc, code_point(run.substr(at)))) break;
      at += length;
      length = 0;
    }
    normalise(run.substr(0, at));
    out_ += run.substr(at, length);
    return at + length;
  }
  void normalise(std::string_view text) {
    if (text.empty()) return;
    constexpr auto options = utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    codes_.clear();
    for (std::size_t at = 0; at < text.size(); at += utf8_sequence(text.substr(at)).length) append_decomposed(text.substr(at));
    order_marks();
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(codes_.data(), utf8proc_ssize_t(codes_.size()), options);
    if (count < 0) refuse(count);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      utf8proc_uint8_t bytes[4];
      const auto length = utf8proc_encode_char(codes_[std::size_t(i)], bytes);
      out_.append(reinterpret_cast<const char*>(bytes), std::size_t(length));
    }
  }

  /// Appends the canonical decomposition of the first character.
  void append_decomposed(std::string_view text) {
    constexpr utf8proc_ssize_t longest = 16;  // four, in Unicode's tables
    const std::size_t before = codes_.size();
    codes_.resize(before + longest);
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(utf8proc_int32_t(code_point(text)), codes_.data() + before, longest,
                                                           utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE), &boundary);
    if (count < 0 || count > longest) refuse(count);
    codes_.resize(before + std::size_t(count));
  }
  /// Sorts each run of combining marks by class; marks of one class keep their order. utf8proc_decompose takes the square of a
  /// run's length for it.
  void order_marks() {
    const auto class_of = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
    const auto is_mark = [&](utf8proc_int32_t code) { return class_of(code) != 0; };
    for (auto begin = std::find_if(codes_.begin(), codes_.end(), is_mark); begin != codes_.end();) {
      const auto end = std::find_if_not(begin, codes_.end(), is_mark);
      std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return class_of(a) < class_of(b); });
      begin = std::find_if(end, codes_.end(), is_mark);
    }
  }
  [[noreturn]] static void refuse(utf8proc_ssize_t code) {
    throw Error(std::string("tokenizer: utf8proc: ") + utf8proc_errmsg(code));
  }

  std::string out_;
  std::vector<utf8proc_int32_t> codes_;
};

}  // namespace weft::hugging_face::detail
