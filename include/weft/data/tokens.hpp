// SPDX-License-Identifier: Apache-2.0
#pragma once
// A long sequence of tokens: the bytes of a text, or a file of integers, mapped into memory. Supported files are nanoGPT's (.bin
// of uint16, no header) and llm.c's, whose header of 1024 bytes has the type and the number of tokens (GPT-2: uint16, Llama 3:
// uint32). Files of uint32 without a header are detected.
//
//   const auto tokens = data::Tokens::open("train.bin", {.vocabulary = 50257});
//   const auto text = data::Tokens::of_text("to be or not to be");

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <weft/core/data_identity.hpp>
#include <weft/data/file_bytes.hpp>

namespace weft::data {

/// The type of a file's tokens. from_header: as the file or its first bytes state (TokensOptions::type).
enum class TokenType : std::uint8_t { from_header, byte, uint16, uint32 };

/// Options of Tokens.
struct TokenOptions {
  /// `from_header`, for a file without a header: uint32 if the vocabulary is above 65,536, or if every second 16-bit word is 0
  /// (above 64 MiB: in 1,024 sampled blocks of 4 KiB). Otherwise uint16, as nanoGPT writes. Tokens::reason() returns the reason.
  TokenType type = TokenType::from_header;
  /// Tokens must be below it; larger ones throw when they are read, or in check(). 0: not checked.
  std::size_t vocabulary = 0;
};

/// The tokens of a text or a binary file. Copies share the memory.
class Tokens {
 public:
  /// Throws UsageError, with the file's name, if it cannot be read, if a header's type, version or number of tokens is
  /// inconsistent, if the bytes are no whole tokens, or if the type is ambiguous between uint16 and uint32 and is not given.
  static Tokens open(const std::string& file, TokenOptions options = {});
  /// The bytes of a text file, as 256 different tokens.
  static Tokens open_text(const std::string& file) { return open(file, {.type = TokenType::byte, .vocabulary = 256}); }
  /// The same for bytes in memory; `file` is their name in messages.
  static Tokens from_bytes(const std::string& file, std::vector<std::uint8_t> bytes, TokenOptions options = {}) {
    return Tokens(detail::FileBytes::from_bytes(file, std::move(bytes)), options);
  }
  static Tokens of_text(std::string_view text) {
    return from_bytes("text", {text.begin(), text.end()}, {.type = TokenType::byte, .vocabulary = 256});
  }

  std::size_t size() const { return size_; }
  TokenType type() const { return type_; }
  /// The reason for the chosen type: "every second word of 16 bits is 0".
  std::string_view reason() const { return reason_; }
  const std::string& file() const { return bytes_->file(); }
  /// The identity of the whole file for SaveOptions::data and LoadOptions::data of checkpoints. The type and a part's position
  /// are settings.
  DataIdentity identity() const;

  /// Only tokens first ... first + count - 1, for example for training or validation. Throws UsageError if there are fewer.
  Tokens part(std::size_t first, std::size_t count) const;

  /// Token i. Throws UsageError if it is not in the vocabulary.
  std::int32_t operator[](std::size_t i) const {
    const std::uint32_t token = raw(i);
    if (token >= limit_) refuse(i, token);
    return static_cast<std::int32_t>(token);
  }
  /// Throws UsageError, as reading it would, for the first token that is not in the vocabulary. Reads all tokens, at about 2.5
  /// GB/s if the file is in memory.
  void check() const { check(0, size_); }
  /// The same for tokens first ... first + count - 1, for ranks that divide the work.
  void check(std::size_t first, std::size_t count) const {
    if (const std::size_t i = find_unknown(first, count); i < first + count) refuse(i, raw(i));
  }
  /// The first of these tokens that is not in the vocabulary; first + count if there is none.
  std::size_t find_unknown(std::size_t first, std::size_t count) const;

  /// Copies tokens first ... first + out.size() - 1. Throws UsageError if one is not in the vocabulary.
  void copy(std::size_t first, std::span<std::int32_t> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + i];
  }

 private:
  Tokens(std::shared_ptr<const detail::FileBytes> bytes, TokenOptions options);

  std::uint32_t raw(std::size_t i) const {
    const std::uint8_t* const at = begin_ + i * width_;  // little-endian, unaligned
    std::uint32_t token = at[0];
    if (width_ > 1) token |= std::uint32_t(at[1]) << 8;
    if (width_ > 2) token |= std::uint32_t(at[2]) << 16 | std::uint32_t(at[3]) << 24;
    return token;
  }
  /// Detects the type of a file without a header.
  void choose_type(std::size_t vocabulary);
  [[noreturn]] void refuse(std::size_t i, std::uint32_t token) const;
  template <class T>
  std::size_t find_unknown_of(std::size_t first, std::size_t count) const;

  std::shared_ptr<const detail::FileBytes> bytes_;
  const std::uint8_t* begin_ = nullptr;
  std::size_t size_ = 0, width_ = 1, first_ = 0;
  std::uint32_t limit_ = 0;
  TokenType type_ = TokenType::byte;
  std::string_view reason_ = "it was asked for";
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/tokens_impl.hpp>
#endif
