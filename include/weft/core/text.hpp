// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages composed of words and numbers. A sum of std::strings compiles to several calls, temporaries and their clean-up at
// every use. A list of words compiles to an array and one call. Rare messages should cost the compiler little.
//
//   joined({"heads(", heads, ") % tp(", tp, ") != 0"})

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include <weft/core/standard.hpp>

#if defined(__GNUC__)
#define WEFT_OUT_OF_LINE [[gnu::noinline]]
#define WEFT_COLD [[gnu::noinline, gnu::cold]]
#else
#define WEFT_OUT_OF_LINE
#define WEFT_COLD
#endif

namespace weft::detail {

/// A piece of a message: characters, which must outlive it, or a whole number. It is two plain values, so a message with numbers
/// compiles to little code.
class Word {
 public:
  constexpr Word(std::string_view letters) : letters_(letters.size() == 0 ? nothing : letters.data()), value_(letters.size()) {}
  constexpr Word(const char* letters) : letters_(letters), value_(ends_with_zero) {}
  Word(const std::string& letters) : letters_(letters.data()), value_(letters.size()) {}
  template <std::integral N>
  requires(!std::same_as<N, char> && !std::same_as<N, bool>) constexpr Word(N number)
      : letters_(std::is_signed_v<N> ? with_sign : nullptr), value_(static_cast<std::uint64_t>(number)) {}

  void append_to(std::string& text) const;

 private:
  static constexpr std::uint64_t ends_with_zero = ~std::uint64_t(0);
  static constexpr char nothing[1] = "", with_sign[1] = "";

  const char* letters_;  // null or `with_sign` for a number
  std::uint64_t value_;  // the number, or the number of characters
};

using Words = std::initializer_list<Word>;

void append_to(std::string& text, Words words);

std::string joined(Words words);

/// Bytes of a file or of another process in a form safe for messages: on one line, at most `most` bytes. Bytes that are not
/// UTF-8, or that would move the cursor, change the direction of a line or be invisible, become '?'.
std::string shown(std::string_view bytes, std::size_t most = 80);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/core/text_impl.hpp>
#endif
