// SPDX-License-Identifier: Apache-2.0
// Files of tokens: nanoGPT's, llm.c's, text; parts; types that are recognised; identities; and the message of each file that is
// refused.
// covers: weft/core/data_identity.hpp

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/data/token_windows.hpp>
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

TEST_CASE("refused files") {
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

TEST_CASE("the type of a file without a header is that of its vocabulary, or of its words") {
  Narrow narrow(2'000);
  Wide wide(2'000);
  for (std::size_t i = 0; i < wide.size(); ++i) narrow[i] = std::uint16_t(wide[i] = std::uint32_t(i * i + 3 * i) % 50'257);
  const auto opened = [](const auto& of, std::size_t vocabulary) {
    return data::Tokens::from_bytes("a.bin", token_file(of), {.vocabulary = vocabulary});
  };
  for (const std::size_t vocabulary : {std::size_t(0), std::size_t(50'257), std::size_t(65'536)}) {
    CHECK(opened(narrow, vocabulary).type() == TokenType::uint16);
    CHECK(opened(narrow, vocabulary).reason() == "it has no header");
    CHECK(all(opened(wide, vocabulary)) == all(opened(narrow, vocabulary)));
    CHECK(opened(wide, vocabulary).reason() == "every second word of 16 bits is 0");
  }
  CHECK(all(opened(wide, 151'936)) == all(opened(narrow, 50'257)));
  CHECK(opened(wide, 151'936).reason() == "the vocabulary is above 65536");
  CHECK(message<UsageError>([&] { opened(narrow, 151'936).check(); }).find("or of another type than uint32") !=
        std::string::npos);
  CHECK(refusal(token_file(Narrow{1, 2, 3}), {.vocabulary = 151'936}) ==
        "its 6 bytes are no whole tokens of uint32, which vocabulary(151936) needs: give the type of its tokens "
        "(TokenOptions::type, --token-type)");
  // Tokens above 65,535 outside the vocabulary, or without a vocabulary.
  wide[1'999] = 151'935;
  const std::string unclear =
      "its tokens may be uint16 or uint32, no second word of 16 bits is above 2: give the type of its tokens "
      "(TokenOptions::type, "
      "--token-type)";
  CHECK(refusal(token_file(wide)) == unclear);
  CHECK(refusal(token_file(wide), {.vocabulary = 65'536}) == unclear);
  CHECK_NOTHROW(opened(wide, 151'936).check());
  // Given types, few tokens, and small tokens.
  CHECK(data::Tokens::from_bytes("a", token_file(wide), {.type = TokenType::uint16}).size() == 4'000);
  CHECK(data::Tokens::from_bytes("a", token_file(wide), {.type = TokenType::uint16}).reason() == "it was asked for");
  CHECK(opened(Narrow{5, 0, 6, 0}, 7).type() == TokenType::uint16);
  CHECK(opened(Narrow(100, 0), 7).type() == TokenType::uint16);
  Narrow few(100);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = std::uint16_t(i * i % 5);
  CHECK(opened(few, 5).type() == TokenType::uint16);
  CHECK(data::Tokens::from_bytes("a", token_file(Wide{1, 2}, llama3, 7)).reason() == "its header says so");
}

TEST_CASE("an identity is of bytes and their reading, not of a name") {
  const Bytes bytes = token_file(Narrow{1, 2, 3, 4, 5, 6});
  const auto identity = [](const std::string& name, const Bytes& of, std::size_t first = 0, std::size_t count = 6) {
    return data::Tokens::from_bytes(name, of).part(first, count).identity();
  };
  const DataIdentity one = identity("a.bin", bytes), moved = identity("b/a.bin", bytes);
  // Checkpoints hold it: it is this number in every version of weft.
  CHECK(one.text() == "a.bin (12 bytes, digest 9bb626aceec0236b)");
  CHECK(moved.digest == one.digest);
  CHECK(moved.settings == one.settings);
  CHECK(one.settings == std::vector<std::pair<std::string, std::string>>{{"token-type", "uint16"}, {"tokens", "6 from 0"}});
  CHECK(identity("a.bin", bytes, 1, 4).digest == one.digest);
  CHECK(identity("a.bin", bytes, 1, 4).settings[1].second == "4 from 1");
  Bytes other = bytes;
  other[7] ^= 1;
  CHECK(identity("a.bin", other).digest != one.digest);
  const auto windows = data::TokenWindows(data::Tokens::from_bytes("a.bin", bytes), {.sequence = 2}).identity();
  CHECK((windows.digest == one.digest && windows.settings.back() == std::pair<std::string, std::string>("sequence", "2")));
  const auto documents =
      data::PackedDocuments(data::Tokens::from_bytes("a.bin", bytes), {.sequence = 2, .separator = 3}).identity();
  CHECK(documents.settings.back() == std::pair<std::string, std::string>("packing", "cut"));
  // Several files, in their order.
  const DataIdentity two("b.bin", other.data(), other.size());
  DataIdentity both = one, reversed = two;
  both.add(two), reversed.add(one);
  CHECK(both.text().starts_with("a.bin and 1 more file (24 bytes, digest "));
  CHECK(both.digest != reversed.digest);
  both.set("a", "b"), both.set("validation-fraction", 0.1), both.set("a", "c");
  CHECK(both.settings[2] == std::pair<std::string, std::string>("a", "c"));
  CHECK(both.settings[3].second == "0.1");
}

TEST_CASE("of a file above 64 MiB 1,024 blocks are compared, the first and the last among them") {
  const std::size_t mib = 1 << 20, size = 65 * mib + 5;
  std::size_t blocks = 0, bytes = 0, end = 0;
  weft::detail::for_each_sampled_block(size, [&](std::size_t place, std::size_t some) {
    CHECK((blocks == 0 ? place == 0 : place >= end && place % 4096 == 0));
    ++blocks, bytes += some, end = place + some;
    return true;
  });
  CHECK((blocks == 1024 && end == size && bytes == 1023 * 4096 + 5));
  Bytes large(size, 0);
  const auto digest = [&] { return DataIdentity("large", large.data(), large.size()).digest; };
  const std::uint64_t before = digest();
  for (const std::size_t place : {std::size_t(0), size - 1}) {
    large[place] = 1;
    CHECK(digest() != before);
    large[place] = 0;
  }
}
