// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to token ids and back, by byte-level BPE from a tokenizer.json of `tokenizers`, as GPT-2, Llama 3, Qwen2 and Qwen3 have
// it. What the file asks for and weft does not do is refused by its name. With CMake link weft::tokenizer; weft::checkpoint is
// not needed for it.
//
//   const auto tokenizer = hugging_face::Tokenizer::load("llama");       // a folder, or the file
//   std::vector<std::int32_t> ids = tokenizer.encode("Hello");          // with <|begin_of_text|>
//   std::string text = tokenizer.decode(ids);                           // "Hello"
//
//   auto stream = tokenizer.stream();                                    // text as ids come
//   while (...) std::cout << stream.next(id) << std::flush;
//   std::cout << stream.finish();

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/hugging_face/tokenizer/error.hpp>

namespace weft::hugging_face {

namespace detail {
class TokenizerParts;
}

/// The text of ids that come one by one, in whole characters: all pieces together are what `decode` gives for all ids. Its
/// tokenizer must outlive it.
class DecodeStream {
 public:
  /// The characters that are whole with this id; nothing while one is incomplete.
  std::string next(std::int32_t id);
  /// The end: U+FFFD if a character has stayed incomplete. The stream may then be used anew.
  std::string finish();

 private:
  friend class Tokenizer;
  DecodeStream(const detail::TokenizerParts& parts, bool skip) : parts_(&parts), skip_special_tokens_(skip) {}
  const detail::TokenizerParts* parts_;
  bool skip_special_tokens_;
  std::string pending_;  // bytes of a character that is not whole: at most 3
};

/// Copies share what was read. All functions may be called by several threads at once.
class Tokenizer {
 public:
  /// `path`: a folder with tokenizer.json, or such a file. Throws TokenizerError for a file that is damaged or asks for what weft
  /// does not do, UsageError for one that cannot be read.
  static Tokenizer load(const std::string& path);
  /// As `load`, from the text of a tokenizer.json; `name` is what messages call it.
  static Tokenizer parse(std::string_view json, const std::string& name = "tokenizer.json");

  /// The ids of a text in UTF-8. Added tokens ("<|im_start|>") in the text are found, as `tokenizers` does.
  /// `add_special_tokens`: those of the file's template around it, such as <|begin_of_text|>.
  /// Throws UsageError if the text is not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  /// The text of ids. Bytes that are no UTF-8 become U+FFFD, ids without a token (a model's padding of its vocabulary) nothing,
  /// both as with `tokenizers`.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const;
  /// For ids that come one by one.
  DecodeStream stream(bool skip_special_tokens = true) const;

  /// One more than the largest id. A model's embedding may have more rows.
  std::size_t vocabulary() const;
  /// The id of a token, as the file writes it: "<|eot_id|>". None if there is no such token.
  std::optional<std::int32_t> id(std::string_view token) const;

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts);
  std::shared_ptr<const detail::TokenizerParts> parts_;
};

}  // namespace weft::hugging_face
