// SPDX-License-Identifier: Apache-2.0
#pragma once
// A text as a template argument: the names of fields, and the letters of einsum.
//
//   template <TextArgument name> struct Named;   // Named<"tokens">

#include <cstddef>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// The characters of a text, with the 0 at its end.
template <std::size_t N>
struct TextArgument {
  char letters[N]{};
  constexpr TextArgument(const char (&text)[N]) {
    for (std::size_t i = 0; i < N; ++i) letters[i] = text[i];
  }
  constexpr std::string_view view() const { return {letters, N - 1}; }
};

}  // namespace weft::detail
