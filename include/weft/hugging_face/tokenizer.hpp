// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to token ids and back: byte-level BPE from a tokenizer.json of `tokenizers`, as in GPT-2, Llama 3, Qwen2 and Qwen3.
// Unsupported features of the file are refused by name. With CMake, link weft::tokenizer; weft::checkpoint is not needed. Ids
// equal those of `tokenizers` 0.23.3, including its Unicode versions (tokenizer/unicode.hpp). One exception: word characters next
// to an added token with `single_word` follow PCRE2's own Unicode, 14 in 10.42.
//
//   const auto tokenizer = hugging_face::Tokenizer::load("llama");       // a folder, or the file
//   std::vector<std::int32_t> ids = tokenizer.encode("Hello");          // with <|begin_of_text|>
//   std::string text = tokenizer.decode(ids);                           // "Hello"
//
//   auto stream = tokenizer.stream();                                    // text as ids arrive
//   while (...) std::cout << stream.next(id) << std::flush;
//   std::cout << stream.finish();

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <weft/core/input_file.hpp>
#include <weft/hugging_face/tokenizer/error.hpp>
#include <weft/hugging_face/tokenizer/parts.hpp>
#include <weft/hugging_face/tokenizer/read.hpp>

namespace weft::hugging_face {

/// The text of ids that arrive one by one, in complete characters. All pieces together equal `decode` of all ids.
class DecodeStream {
 public:
  /// The characters that this id completes; empty while a character is incomplete.
  std::string next(std::int32_t id) {
    std::string text;
    detail::append_characters(text, pending_, parts_->bytes_of(id, skip_special_tokens_), true);
    return text;
  }
  /// Ends the text: returns U+FFFD if a character is incomplete. The stream can then be reused.
  std::string finish() {
    std::string text;
    detail::append_characters(text, pending_, {}, false);
    return text;
  }

 private:
  friend class Tokenizer;
  DecodeStream(std::shared_ptr<const detail::TokenizerParts> parts, bool skip)
      : parts_(std::move(parts)), skip_special_tokens_(skip) {}
  std::shared_ptr<const detail::TokenizerParts> parts_;
  bool skip_special_tokens_;
  std::string pending_;  // bytes of an incomplete character: at most 3
};

/// Copies share the parsed data. All functions are thread-safe.
class Tokenizer {
 public:
  /// `path`: a folder with tokenizer.json, or such a file. Throws TokenizerError for a file that is damaged or uses unsupported
  /// features, UsageError for one that cannot be read.
  static Tokenizer load(const std::string& path) {
    std::error_code ignored;
    const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/tokenizer.json" : path;
    const std::uint64_t most = detail::TokenizerJsonReader::most_bytes;
    return parse(weft::detail::InputFile("tokenizer", file, "tokenizer.json", most).read(), file);
  }
  /// As `load`, from the text of a tokenizer.json; `name` is its name in messages.
  static Tokenizer parse(std::string_view json, const std::string& name = "tokenizer.json") {
    return Tokenizer(detail::TokenizerReader::read(json, name));
  }

  /// The ids of a UTF-8 text. Added tokens ("<|im_start|>") in the text are found, as in `tokenizers`. `add_special_tokens`: adds
  /// the tokens of the file's template, such as <|begin_of_text|>. Throws UsageError if the text is not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = true) const {
    return parts_->encode(text, add_special_tokens);
  }
  /// The text of ids. Bytes that are not valid UTF-8 become U+FFFD. Ids without a token (a model's padded vocabulary) become
  /// nothing. Both are as in `tokenizers`.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const {
    std::string bytes, text, pending;
    for (const std::int32_t id : ids) bytes += parts_->bytes_of(id, skip_special_tokens);
    detail::append_characters(text, pending, bytes, false);
    return text;
  }
  /// Decodes ids that arrive one by one.
  DecodeStream stream(bool skip_special_tokens = true) const { return {parts_, skip_special_tokens}; }

  /// One more than the largest id. A model's embedding may have more rows.
  std::size_t vocabulary() const { return parts_->bytes.size(); }
  /// The id of a token as spelled in the file: "<|eot_id|>". None if there is no such token.
  std::optional<std::int32_t> id(std::string_view token) const { return parts_->id(token); }

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const detail::TokenizerParts> parts_;
};

}  // namespace weft::hugging_face
