// SPDX-License-Identifier: Apache-2.0
// A text to encode, any bytes: it is refused because it is not UTF-8, or its ids decode to it, or to its normal form, and come
// out the same by pieces. The words that the ids came from are merged as by the plainest loop.

// links: -lpcre2-8 -lutf8proc
#include <weft/hugging_face/tokenizer.hpp>

#include "fuzz/support/fuzz.hpp"

using weft::UsageError;
using weft::hugging_face::Tokenizer;
namespace parts = weft::hugging_face::detail;

namespace {

std::string file(bool nfc) {
  nlohmann::json vocabulary, merges = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[std::string(parts::ByteAlphabet::get().character(static_cast<unsigned char>(byte)))] = byte;
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"a", "a"},
                                                                                    {"aa", "a"},
                                                                                    {"aa", "aa"},
                                                                                    {"b", "a"},
                                                                                    {"a", "b"},
                                                                                    {"ab", "ab"},
                                                                                    {"\u0120", "a"},
                                                                                    {"\u0120", "\u0120"},
                                                                                    {"\u00c3", "\u00a9"}}) {
    vocabulary[left + right] = vocabulary.size();
    merges.push_back({left, right});
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  nlohmann::json whole = {{"version", "1.0"},
                          {"pre_tokenizer", byte_level},
                          {"decoder", byte_level},
                          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
  if (nfc) whole["normalizer"] = {{"type", "NFC"}};
  return whole.dump();
}

/// The definition: the pair of lowest rank, the leftmost of them, until there is none.
std::vector<std::int32_t> merged(const parts::TokenizerParts& whole, std::string_view word) {
  std::vector<std::int32_t> ids;
  for (const char byte : word) ids.push_back(whole.byte_ids[static_cast<unsigned char>(byte)]);
  for (;;) {
    std::size_t best = 0;
    parts::Merges::Merge least = {parts::Merges::none, -1};
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto merge = whole.merges.find(ids[i], ids[i + 1]); merge.rank < least.rank) least = merge, best = i;
    if (least.rank == parts::Merges::none) return ids;
    ids[best] = least.id;
    ids.erase(ids.begin() + std::ptrdiff_t(best) + 1);
  }
}

}  // namespace

void weft_test::target(Input input) {
  static const auto plain = parts::TokenizerReader::read(file(false), "plain.json");
  static const Tokenizer tokenizer = Tokenizer::parse(file(false)), with_nfc = Tokenizer::parse(file(true));
  const std::string_view text = input.rest();
  try {
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    expect(parts::not_utf8_at(text) == text.npos);
    expect(tokenizer.decode(ids) == text);
    parts::Nfc nfc;
    const std::string normal(nfc(text));
    expect(with_nfc.decode(with_nfc.encode(text)) == normal);
    expect(nfc(normal) == normal);
    parts::PatternMemory memory;
    std::vector<std::int32_t> slow;
    static const parts::Pattern gpt2(parts::Pattern::gpt2);
    gpt2.split(text, memory, [&](std::string_view word) {
      const auto of_word = merged(*plain, word);
      slow.insert(slow.end(), of_word.begin(), of_word.end());
    });
    expect(ids == slow);
    auto stream = tokenizer.stream();
    std::string pieces;
    for (const std::int32_t id : ids) {
      const std::string piece = stream.next(id);
      expect(parts::not_utf8_at(piece) == piece.npos);
      pieces += piece;
    }
    expect(pieces + stream.finish() == text);
  } catch (const UsageError& error) {
    expect_message(error.what());
    expect(parts::not_utf8_at(text) != text.npos);
  }
}

std::vector<std::string> weft_test::seeds() {
  return {"aaaaaabab it's 123  \n caf\xc3\xa9 e\xcc\x81\xcc\xa3 \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab",
          std::string(100, 'a') + "b" + std::string(50, ' ') + std::string(50, 'a'),
          "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xf0\x91\xa4\xb5\xf0\x91\xa4\xb0\xe0\xa3\x93"};
}
