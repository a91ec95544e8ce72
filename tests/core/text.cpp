// SPDX-License-Identifier: Apache-2.0
// Words of messages: letters and integers of every width, joined.
#include <weft/core/text.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using weft::detail::append_to;
using weft::detail::joined;
using weft::detail::shown;

TEST_CASE("numbers are what std::to_string writes, up to their limits") {
  CHECK(joined({0}) == "0");
  CHECK(joined({-1, " ", 10u, " ", std::int8_t(-128), " ", std::uint8_t(255)}) == "-1 10 -128 255");
  CHECK(joined({std::numeric_limits<std::int64_t>::min()}) == std::to_string(std::numeric_limits<std::int64_t>::min()));
  CHECK(joined({std::numeric_limits<std::int64_t>::max()}) == std::to_string(std::numeric_limits<std::int64_t>::max()));
  CHECK(joined({std::numeric_limits<std::uint64_t>::max()}) == std::to_string(std::numeric_limits<std::uint64_t>::max()));
}

TEST_CASE("letters of every kind, none at all, and zeros among them") {
  const std::string string = "b\0c", with_zero("b\0c", 3);
  CHECK(joined({"a", string, std::string_view("def").substr(0, 2), "", std::string_view(), std::string()}) == "abde");
  CHECK(joined({with_zero, "."}) == std::string("b\0c.", 4));
  CHECK(joined({}).empty());
}

TEST_CASE("append_to adds to the text") {
  std::string text = "rank";
  append_to(text, {" ", 3, ": ", "lost"});
  CHECK(text == "rank 3: lost");
}

TEST_CASE("shown: characters of UTF-8 stay, control characters of a terminal do not") {
  CHECK(shown("runs/\u00fcml\u00e4uts \u6f22\u5b57 \U0001f600/a~") == "runs/\u00fcml\u00e4uts \u6f22\u5b57 \U0001f600/a~");
  CHECK(shown(std::string_view("a\nb\x1b[31m\x7f\0c", 11)) == "a?b?[31m??c");
  CHECK(shown("\u009b31m\u200b\u202ex\u2066\ufeff") == "??31m??????x??????");  // C1 controls, no width, other directions
  CHECK(shown("\x80\xc0\xaf\xed\xa0\x80\xf5") == "???????");  // invalid UTF-8: incomplete, overlong, a surrogate, too large
  CHECK(shown("\xe6\xbc") == "??");                           // cut off
  CHECK(shown("abcdef", 6) == "abcdef");
  CHECK(shown("abcdefg", 6) == "abcdef...");
  CHECK(shown("abcde\u00fc", 6) == "abcde...");
}
