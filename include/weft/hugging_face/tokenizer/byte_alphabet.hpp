// SPDX-License-Identifier: Apache-2.0
#pragma once
// The alphabet of byte-level BPE: one visible character per byte, so that tokens of any bytes can be written as text. Printable
// bytes of Latin-1 map to themselves, the others to U+0100 and the following characters (Radford et al., 2019, GPT-2).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/hugging_face/tokenizer/utf8.hpp>

namespace weft::hugging_face::detail {

class ByteAlphabet {
 public:
  static const ByteAlphabet& get() {
    static const ByteAlphabet alphabet;
    return alphabet;
  }

  /// The character of a byte, in UTF-8.
  std::string_view character(unsigned char byte) const { return characters_[byte]; }
  /// Bytes as text.
  std::string spelled(std::string_view bytes) const {
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char byte : bytes) text += character(static_cast<unsigned char>(byte));
    return text;
  }
  /// The bytes that a UTF-8 text spells; the text itself if one of its characters is not in the alphabet.
  std::string bytes(std::string_view text) const {
    std::string all;
    for (std::string_view rest = text; !rest.empty();) {
      const std::uint32_t code = code_point(rest);
      if (code >= byte_.size() || byte_[code] < 0) return std::string(text);
      all += static_cast<char>(byte_[code]);
      rest.remove_prefix(code < 0x80 ? 1 : 2);
    }
    return all;
  }

 private:
  ByteAlphabet() {
    byte_.fill(-1);
    std::uint32_t next = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const std::uint32_t code = visible ? byte : next++;
      byte_[code] = static_cast<int>(byte);
      if (code < 0x80) characters_[byte] = static_cast<char>(code);
      else characters_[byte] = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
  }

  std::array<std::string, 256> characters_;
  std::array<int, 0x144> byte_;
};

}  // namespace weft::hugging_face::detail
