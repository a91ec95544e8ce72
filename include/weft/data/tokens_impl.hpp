// SPDX-License-Identifier: Apache-2.0
#pragma once
// The headers and types of token files, and the check of tokens. Definitions for data/tokens.hpp.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <weft/core/inline.hpp>
#include <weft/data/tokens.hpp>

namespace weft::data {
namespace detail {

WEFT_INLINE const char* name_of(TokenType type) {
  return type == TokenType::uint32 ? "uint32" : type == TokenType::byte ? "bytes" : "uint16";
}

/// The largest even and the largest odd 16-bit words of a file's sampled blocks. Stops early once an odd word is too large for
/// the upper half of a token.
struct LargestWords {
  std::uint32_t even = 0, odd = 0;
  static constexpr std::uint32_t most_odd = 15;  // tokens are below 2^20

  explicit LargestWords(std::span<const std::uint8_t> bytes) {
    weft::detail::for_each_sampled_block(bytes.size(), [&](std::size_t place, std::size_t some) {
      for (std::size_t at = place; at + 4 <= place + some && odd <= most_odd; at += 4) {
        even = std::max(even, std::uint32_t(bytes[at]) | std::uint32_t(bytes[at + 1]) << 8);
        odd = std::max(odd, std::uint32_t(bytes[at + 2]) | std::uint32_t(bytes[at + 3]) << 8);
      }
      return odd <= most_odd;
    });
  }
};

}  // namespace detail

WEFT_INLINE Tokens Tokens::open(const std::string& file, TokenOptions options) {
  return Tokens(detail::FileBytes::open(file), options);
}

WEFT_INLINE Tokens::Tokens(std::shared_ptr<const detail::FileBytes> bytes, TokenOptions options)
    : bytes_(std::move(bytes)), type_(options.type) {
  const std::span<const std::uint8_t> all = bytes_->bytes();
  const auto fail = [&](weft::detail::Words reason) { detail::refuse_file(file(), reason); };
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t(all[4 * at + i]) << 8 * i;
    return value;
  };
  const auto name = [](TokenType type) { return detail::name_of(type); };
  constexpr std::uint32_t gpt2 = 20240520, llama3 = 20240801, evaluation = 20240522;  // magic numbers of llm.c, with versions 1
                                                                                      // and 7
  constexpr std::size_t header = 1024;
  const std::uint32_t magic = all.size() >= 4 && type_ != TokenType::byte ? number(0) : 0;
  const bool with_header = magic == gpt2 || magic == llama3;
  if (magic == evaluation) fail({"it is one of llm.c's files of questions (HellaSwag), not of tokens"});
  if (with_header) {
    const TokenType type = magic == gpt2 ? TokenType::uint16 : TokenType::uint32;
    if (type_ != TokenType::from_header && type_ != type)
      fail({"its header says tokens of ", name(type), ", ", name(type_), " was asked for"});
    if (type_ == TokenType::from_header) reason_ = "its header says so";
    type_ = type;
    if (all.size() < header) fail({"it is cut off: llm.c's header has ", header, " bytes, the file ", all.size()});
    const std::uint32_t version = number(1), wanted = magic == gpt2 ? 1 : 7;
    if (version != wanted)
      fail({"its header says version ", version, ", llm.c's files of ", name(type), " are of version ", wanted});
  }
  if (type_ == TokenType::from_header) choose_type(options.vocabulary);
  width_ = type_ == TokenType::uint32 ? 4 : type_ == TokenType::uint16 ? 2 : 1;
  const std::size_t place = with_header ? header : 0, there = all.size() - place;
  if (there % width_ != 0) fail({"its ", there, " bytes of tokens are no whole tokens of ", name(type_)});
  size_ = there / width_;
  if (with_header && number(2) != size_)
    fail({number(2) > size_ ? "it is cut off: " : "it is too long: ", "its header says ", number(2), " tokens, it has ", size_});
  if (size_ == 0) fail({"it has no tokens"});
  begin_ = all.data() + place;
  constexpr std::uint32_t most = std::numeric_limits<std::int32_t>::max();
  limit_ = options.vocabulary == 0 || options.vocabulary > most ? most : static_cast<std::uint32_t>(options.vocabulary);
}

WEFT_INLINE void Tokens::choose_type(std::size_t vocabulary) {
  const std::span<const std::uint8_t> all = bytes_->bytes();
  constexpr std::size_t most_narrow = 65'536, least_bytes = 32;  // fewer bytes are not conclusive
  if (vocabulary > most_narrow) {
    type_ = TokenType::uint32;
    reason_ = "the vocabulary is above 65536";
    if (all.size() % 4 != 0)
      detail::refuse_file(file(), {"its ", all.size(), " bytes are no whole tokens of uint32, which vocabulary(", vocabulary,
                                   ") needs: give the type of its tokens (TokenOptions::type, --token-type)"});
    return;
  }
  type_ = TokenType::uint16;
  reason_ = "it has no header";
  if (all.size() % 4 != 0 || all.size() < least_bytes) return;
  const detail::LargestWords largest(all);
  if (largest.odd == 0 && largest.even > 0) {
    type_ = TokenType::uint32;
    reason_ = "every second word of 16 bits is 0";
  } else if (largest.odd > 0 && largest.odd <= detail::LargestWords::most_odd && largest.even > 255) {
    detail::refuse_file(file(), {"its tokens may be uint16 or uint32, no second word of 16 bits is above ", largest.odd,
                                 ": give the type of its tokens (TokenOptions::type, --token-type)"});
  }
}

WEFT_INLINE DataIdentity Tokens::identity() const {
  DataIdentity identity(file(), bytes_->bytes().data(), bytes_->bytes().size());
  identity.set("token-type", detail::name_of(type_));
  identity.set("tokens", weft::detail::joined({size_, " from ", first_}));
  return identity;
}

WEFT_INLINE Tokens Tokens::part(std::size_t first, std::size_t count) const {
  if (first > size_ || count > size_ - first)
    throw_error<UsageError>({"data: '", file(), "' has ", size_, " tokens: there are not ", count, " from ", first, " on"});
  Tokens part = *this;
  part.begin_ += first * width_;
  part.first_ += first;
  part.size_ = count;
  return part;
}

template <class T>
std::size_t Tokens::find_unknown_of(std::size_t first, std::size_t count) const {
  if (std::numeric_limits<T>::max() < limit_) return first + count;
  constexpr std::size_t block = 16 * 1024;  // the maximum of a block is vectorised
  for (std::size_t done = 0; done < count; done += block) {
    const std::size_t n = std::min(block, count - done);
    const std::uint8_t* const at = begin_ + (first + done) * sizeof(T);
    T largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      T token;
      std::memcpy(&token, at + i * sizeof(T), sizeof(T));
      if constexpr (std::endian::native == std::endian::big) token = static_cast<T>(raw(first + done + i));
      largest = std::max(largest, token);
    }
    if (largest < limit_) continue;
    for (std::size_t i = first + done;; ++i)
      if (raw(i) >= limit_) return i;
  }
  return first + count;
}
WEFT_INLINE std::size_t Tokens::find_unknown(std::size_t first, std::size_t count) const {
  if (first > size_ || count > size_ - first) part(first, count);  // throws
  return width_ == 4   ? find_unknown_of<std::uint32_t>(first, count)
         : width_ == 2 ? find_unknown_of<std::uint16_t>(first, count)
                       : find_unknown_of<std::uint8_t>(first, count);
}

WEFT_COLD WEFT_INLINE void Tokens::refuse(std::size_t i, std::uint32_t token) const {
  throw_error<UsageError>({"data: '", file(), "': token(", token, ") at place ", first_ + i, " is not in the vocabulary(", limit_,
                           "): the file is of another ", "tokenizer or of another type than ", detail::name_of(type_)});
}

}  // namespace weft::data
