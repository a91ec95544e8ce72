// SPDX-License-Identifier: Apache-2.0
// Files of tokens: nanoGPT's, llm.c's, text; parts; and the message of each file that is refused.

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <weft/data/tokens.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;
using data::TokenType;

namespace {

using Narrow = std::vector<std::uint16_t>;
using Wide = std::vector<std::uint32_t>;
constexpr std::uint32_t gpt2 = 20240520, llama3 = 20240801;

std::vector<std::int32_t> all(const data::Tokens& tokens) {
  std::vector<std::int32_t> out(tokens.size());
  tokens.copy(0, out);
  return out;
}

std::string refusal(const Bytes& bytes, data::TokenOptions options = {}) {
  const std::string text = message<UsageError>([&] { data::Tokens::from_bytes("a.bin", bytes, options); });
  constexpr std::string_view begin = "weft: data: cannot read 'a.bin': ";
  REQUIRE(text.starts_with(begin));
  return text.substr(begin.size());
}

}  // namespace

TEST_CASE("files with and without a header") {
  const std::vector<std::int32_t> expected{1, 50256, 65535};
  CHECK(all(data::Tokens::from_bytes("a", token_file(Narrow{1, 50256, 65535}))) == expected);
  CHECK(all(data::Tokens::from_bytes("a", token_file(Narrow{1, 50256, 65535}, gpt2, 1))) == expected);
  const auto wide = data::Tokens::from_bytes("a", token_file(Wide{1, 128000, 70000}, llama3, 7));
  CHECK(wide.type() == TokenType::uint32);
  CHECK(all(wide) == std::vector<std::int32_t>{1, 128000, 70000});
  CHECK(all(data::Tokens::from_bytes("a", token_file(Wide{1, 128000}), {.type = TokenType::uint32})) ==
        std::vector<std::int32_t>{1, 128000});
  CHECK(all(data::Tokens::of_text("ab\xff")) == std::vector<std::int32_t>{97, 98, 255});

  const TemporaryFolder folder;
  const std::string file = (folder.path / "train.bin").string();
  const Bytes bytes = token_file(Narrow{5, 6, 7});
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  CHECK(all(data::Tokens::open(file)) == std::vector<std::int32_t>{5, 6, 7});
  CHECK(all(data::Tokens::open_text(file)) == std::vector<std::int32_t>{5, 0, 6, 0, 7, 0});
}

TEST_CASE("a part keeps its places") {
  const auto tokens = data::Tokens::from_bytes("a", token_file(Narrow{1, 2, 3, 4, 500, 6}), {.vocabulary = 100});
  const auto part = tokens.part(2, 4).part(1, 3);
  CHECK(part.size() == 3);
  CHECK(part[0] == 4);
  CHECK(message<UsageError>([&] { part[1]; }) ==
        "weft: data: 'a': token(500) at place 4 is not in the vocabulary(100): the file is of another tokenizer or of another "
        "type than uint16");
  CHECK(message<UsageError>([&] { tokens.part(4, 3); }) == "weft: data: 'a' has 6 tokens: there are not 3 from 4 on");
  CHECK(message<UsageError>([&] { tokens.part(1, std::size_t(-1)); }) != "");
  const auto wide = data::Tokens::from_bytes("a", token_file(Wide{0xffffffffu}), {.type = TokenType::uint32});
  CHECK(message<UsageError>([&] { wide[0]; }).find("token(4294967295) at place 0 is not in the vocabulary(2147483647)") !=
        std::string::npos);
}

TEST_CASE("a whole file is checked before it is used") {
  const std::size_t many = 40'000;  // several blocks
  Narrow narrow(many, 7);
  Wide wide(many, 7);
  const auto opened = [](const auto& of, std::size_t vocabulary) {
    const bool is_wide = sizeof(of[0]) == 4;
    return data::Tokens::from_bytes("a", token_file(of),
                                    {.type = is_wide ? TokenType::uint32 : TokenType::uint16, .vocabulary = vocabulary});
  };
  CHECK_NOTHROW(opened(narrow, 8).check());
  CHECK_NOTHROW(opened(wide, 8).check());
  CHECK(opened(narrow, 7).find_unknown(0, many) == 0);
  for (const std::size_t bad : {std::size_t(0), std::size_t(16'383), std::size_t(16'384), std::size_t(30'001), many - 1}) {
    narrow[bad] = 300, wide[bad] = 70'000;
    const auto tokens = opened(narrow, 300), all = opened(wide, 300);
    CHECK(tokens.find_unknown(0, many) == bad);
    CHECK(all.find_unknown(0, many) == bad);
    CHECK(tokens.find_unknown(0, bad) == bad);  // not among these
    CHECK(tokens.find_unknown(bad + 1, many - bad - 1) == many);
    CHECK(tokens.find_unknown(bad, 1) == bad);
    CHECK(tokens.part(bad, many - bad).find_unknown(0, many - bad) == 0);
    CHECK(message<UsageError>([&] { tokens.check(); }) ==
          "weft: data: 'a': token(300) at place " + std::to_string(bad) +
              " is not in the vocabulary(300): the file is of another tokenizer or of another type than uint16");
    CHECK_NOTHROW(opened(narrow, 301).check());
    CHECK_NOTHROW(opened(narrow, 0).check());
    narrow[bad] = 7, wide[bad] = 7;
  }
  narrow[3] = 65'535;
  CHECK(opened(narrow, 65'535).find_unknown(0, many) == 3);
  CHECK_NOTHROW(opened(narrow, 65'536).check());
  CHECK(message<UsageError>([&] { opened(narrow, 8).check(1, many); }) ==
        "weft: data: 'a' has 40000 tokens: there are not 40000 from 1 on");
  CHECK_NOTHROW(data::Tokens::of_text("ab\xff").check());
}

TEST_CASE("what is refused") {
  CHECK(refusal({1, 0, 2}) == "its 3 bytes of tokens are no whole tokens of uint16");
  CHECK(refusal(token_file(Narrow{1, 2, 3}), {.type = TokenType::uint32}) ==
        "its 6 bytes of tokens are no whole tokens of uint32");
  CHECK(refusal(token_file(Narrow{1, 2, 3}, gpt2, 1, 5)) == "it is cut off: its header says 5 tokens, it has 3");
  CHECK(refusal(token_file(Narrow{1, 2, 3}, gpt2, 1, 2)) == "it is too long: its header says 2 tokens, it has 3");
  CHECK(refusal(token_file(Narrow{}, gpt2, 1, 0)) == "it has no tokens");
  CHECK(refusal(token_file(Narrow{1}, gpt2, 2)) == "its header says version 2, llm.c's files of uint16 are of version 1");
  CHECK(refusal(token_file(Wide{1}, llama3, 1)) == "its header says version 1, llm.c's files of uint32 are of version 7");
  CHECK(refusal(token_file(Wide{1}, llama3, 7), {.type = TokenType::uint16}) ==
        "its header says tokens of uint32, uint16 was asked for");
  CHECK(refusal(token_file(Narrow{1}, 20240522, 1)) == "it is one of llm.c's files of questions (HellaSwag), not of tokens");
  const Bytes whole = token_file(Narrow{1, 2, 3}, gpt2, 1);
  for (std::size_t length = 4; length < whole.size(); ++length) {
    const std::string text = refusal(Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(length)));
    if (length < 1024) CHECK(text == "it is cut off: llm.c's header has 1024 bytes, the file " + std::to_string(length));
    else CHECK((length % 2 == 1 || text.starts_with("it ")));
  }
}
