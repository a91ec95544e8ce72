// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens outside the vocabulary, such as "<|im_start|>". They are found in a text before anything is split or merged; at each
// position the longest matches. Each has flags for the white space that it absorbs, and for matches inside a word.

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <weft/hugging_face/tokenizer/pattern.hpp>
#include <weft/hugging_face/tokenizer/unicode.hpp>
#include <weft/hugging_face/tokenizer/utf8.hpp>

namespace weft::hugging_face::detail {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

/// The added tokens of one kind: searched before the text is normalised, or after.
class AddedTokens {
 public:
  /// Returns false if a token with this content exists.
  bool add(const AddedToken& token) {
    starts_.set(static_cast<unsigned char>(token.content.front()));
    std::vector<std::size_t>& lengths = lengths_[static_cast<unsigned char>(token.content.front())];
    const auto at = std::ranges::lower_bound(lengths, token.content.size(), std::greater<>());
    if (at == lengths.end() || *at != token.content.size()) lengths.insert(at, token.content.size());
    return tokens_.emplace(token.content, token).second;
  }

  /// Calls `text` with each stretch between tokens, and `token` with each token's id, in order. Matches are the same as in
  /// `find_matches` of `tokenizers`.
  template <class Text, class Token>
  void split(std::string_view sentence, PatternMemory& memory, Text&& text, Token&& token) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < sentence.size() && !tokens_.empty();) {
      const AddedToken* const found = find(sentence.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      std::size_t start = at, stop = at + found->content.size();
      at = stop;
      if (found->single_word && is_inside_word(sentence, start, stop, memory)) continue;
      if (found->lstrip) {
        while (start > 0 && is_space(code_point(sentence.substr(before(sentence, start))))) start = before(sentence, start);
        start = std::max(start, done);
      }
      if (found->rstrip)
        while (stop < sentence.size() && is_space(code_point(sentence.substr(stop))))
          stop += utf8_sequence(sentence.substr(stop)).length;
      if (start >= stop) continue;  // the previous token has absorbed the white space
      if (done < start) text(sentence.substr(done, start - done));
      token(found->id);
      done = stop;
    }
    if (done != sentence.size()) text(sentence.substr(done));
  }

 private:
  /// The longest token at the start of the text.
  const AddedToken* find(std::string_view text) const {
    const auto first = static_cast<unsigned char>(text.front());
    if (!starts_.test(first)) return nullptr;
    for (const std::size_t length : lengths_[first]) {
      if (length > text.size()) continue;
      if (const auto found = tokens_.find(text.substr(0, length)); found != tokens_.end()) return &found->second;
    }
    return nullptr;
  }
  static std::size_t before(std::string_view text, std::size_t at) {
    do --at;
    while (at > 0 && is_continuation(text[at]));
    return at;
  }
  /// True if a word character (\w in PCRE2's Unicode version) is adjacent to the match.
  static bool is_inside_word(std::string_view text, std::size_t start, std::size_t stop, PatternMemory& memory) {
    static const Pattern word = Pattern::word();
    const auto is_word = [&](std::size_t at) {
      return word.is_in(text.substr(at, utf8_sequence(text.substr(at)).length), memory);
    };
    return (start > 0 && is_word(before(text, start))) || (stop < text.size() && is_word(stop));
  }

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, AddedToken, Hash, std::equal_to<>> tokens_;
  std::bitset<256> starts_;                            // the first bytes of tokens
  std::array<std::vector<std::size_t>, 256> lengths_;  // lengths of the tokens by first byte, longest first
};

}  // namespace weft::hugging_face::detail
