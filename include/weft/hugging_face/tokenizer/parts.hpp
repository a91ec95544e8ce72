// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a parsed tokenizer.json, and the encoding and decoding with them. Added tokens are cut out. The text between them
// is normalised, split into words by the pre-tokeniser's patterns, and each word is merged. Frequent words are cached with their
// ids.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/hugging_face/tokenizer/added_tokens.hpp>
#include <weft/hugging_face/tokenizer/byte_alphabet.hpp>
#include <weft/hugging_face/tokenizer/byte_pair_encoding.hpp>
#include <weft/hugging_face/tokenizer/json.hpp>
#include <weft/hugging_face/tokenizer/nfc.hpp>
#include <weft/hugging_face/tokenizer/pattern.hpp>
#include <weft/hugging_face/tokenizer/utf8.hpp>

namespace weft::hugging_face::detail {

/// A cache of words with their ids. If two words have the same slot, the later one stays.
class WordCache {
 public:
  static constexpr std::size_t most_bytes = 24, most_ids = 7;

  struct Entry {
    std::uint8_t bytes = 0, count = 0;
    std::array<char, most_bytes> word = {};
    std::array<std::int32_t, most_ids> ids = {};
  };
  /// The slot of a word of at most `most_bytes` bytes. It may hold another word, which this one may replace.
  Entry& at(std::string_view word) { return entries_[std::hash<std::string_view>()(word) % entries_.size()]; }
  static bool has(const Entry& entry, std::string_view word) {
    return entry.bytes == word.size() && std::memcmp(entry.word.data(), word.data(), word.size()) == 0;
  }
  static void set(Entry& entry, std::string_view word, std::span<const std::int32_t> ids) {
    if (ids.size() > most_ids) return;
    entry.bytes = std::uint8_t(word.size());
    entry.count = std::uint8_t(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  std::vector<Entry> entries_{std::size_t(1) << 15};
};

/// Working memory of one encoding thread.
struct EncodeMemory {
  PatternMemory pattern;
  Nfc nfc;
  WordMerger merger;
  WordCache cache;
};

class TokenizerParts {
 public:
  /// A step of the pre-tokeniser: a pattern that splits; or none, for a space that is put before every piece.
  using Step = std::optional<Pattern>;

  // Set by the reader (read.hpp).
  Texts tokens;                                             // keys of model.vocab, as spelled in the file
  std::unordered_map<std::string_view, std::int32_t> ids;   // their ids
  std::unordered_map<std::string, std::int32_t> added_ids;  // of added_tokens
  std::array<std::int32_t, 256> byte_ids = {};
  Merges merges;
  bool ignore_merges = false, nfc = false;
  std::vector<Step> steps;
  AddedTokens raw_tokens, normalised_tokens;
  std::vector<std::int32_t> before, after;  // ids of the template
  std::vector<std::string> bytes;           // of each id, when decoded
  std::vector<bool> special;                // true if the id is omitted when special tokens are skipped

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const {
    if (text.size() >= std::size_t(1) << 31)
      throw_error<UsageError>({"tokenizer: the text has ", text.size(), " bytes: encode it in pieces of less than 2^31"});
    if (const std::size_t at = not_utf8_at(text); at != text.npos)
      throw_error<UsageError>({"tokenizer: the text is not UTF-8: byte ", at, " begins no character"});
    std::vector<std::int32_t> out;
    if (add_special_tokens) out = before;
    std::unique_ptr<EncodeMemory> memory = take_memory();
    memory->pattern.set_limits(text.size());
    const auto add = [&](std::int32_t id) { out.push_back(id); };
    raw_tokens.split(
        text, memory->pattern,
        [&](std::string_view between) {
          normalised_tokens.split(
              nfc ? memory->nfc(between) : between, memory->pattern,
              [&](std::string_view piece) { encode_piece(piece, 0, *memory, out); }, add);
        },
        add);
    give_back(std::move(memory));
    if (add_special_tokens) out.insert(out.end(), after.begin(), after.end());
    return out;
  }

  std::optional<std::int32_t> id(std::string_view token) const {
    if (const auto added = added_ids.find(std::string(token)); added != added_ids.end()) return added->second;
    if (const auto known = ids.find(token); known != ids.end()) return known->second;
    return std::nullopt;
  }
  /// The bytes of an id. Empty for an id without a token, and for a special token if these are skipped.
  std::string_view bytes_of(std::int32_t id, bool skip_special_tokens) const {
    if (id < 0 || std::size_t(id) >= bytes.size() || (skip_special_tokens && special[std::size_t(id)])) return {};
    return bytes[std::size_t(id)];
  }

 private:
  void encode_piece(std::string_view piece, std::size_t step, EncodeMemory& memory, std::vector<std::int32_t>& out) const {
    if (step == steps.size()) {
      encode_word(piece, memory, out);
    } else if (steps[step]) {
      steps[step]->split(piece, memory.pattern, [&](std::string_view part) { encode_piece(part, step + 1, memory, out); });
    } else if (piece.starts_with(' ')) {
      encode_piece(piece, step + 1, memory, out);
    } else {
      encode_piece(" " + std::string(piece), step + 1, memory, out);
    }
  }
  void encode_word(std::string_view word, EncodeMemory& memory, std::vector<std::int32_t>& out) const {
    if (word.size() > WordCache::most_bytes) return merge_word(word, memory, out);
    WordCache::Entry& entry = memory.cache.at(word);
    if (WordCache::has(entry, word)) {
      out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    } else {
      const std::size_t first = out.size();
      merge_word(word, memory, out);
      WordCache::set(entry, word, std::span(out).subspan(first));
    }
  }
  void merge_word(std::string_view word, EncodeMemory& memory, std::vector<std::int32_t>& out) const {
    if (ignore_merges) {
      const auto whole = ids.find(ByteAlphabet::get().spelled(word));
      if (whole != ids.end()) return out.push_back(whole->second);
    }
    memory.merger(merges, byte_ids, word, out);
  }

  std::unique_ptr<EncodeMemory> take_memory() const {
    const std::lock_guard lock(mutex_);
    if (memories_.empty()) return std::make_unique<EncodeMemory>();
    std::unique_ptr<EncodeMemory> memory = std::move(memories_.back());
    memories_.pop_back();
    return memory;
  }
  void give_back(std::unique_ptr<EncodeMemory> memory) const {
    const std::lock_guard lock(mutex_);
    memories_.push_back(std::move(memory));
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<EncodeMemory>> memories_;  // one per thread that has encoded concurrently
};

}  // namespace weft::hugging_face::detail
