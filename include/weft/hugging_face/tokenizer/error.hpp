// SPDX-License-Identifier: Apache-2.0
#pragma once
// The error of a tokenizer.json, with the file and the field.
//
//   try { Tokenizer::load("llama"); } catch (const TokenizerError& error) { error.field(); }   // "pre_tokenizer.type"

#include <string>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::hugging_face {

/// A tokenizer.json that is damaged, or uses unsupported features: exit code 2.
class TokenizerError : public weft::Error {
 public:
  TokenizerError(const std::string& what, std::string file, std::string field)
      : weft::Error(what, 2), file_(std::move(file)), field_(std::move(field)) {}
  const std::string& file() const { return file_; }
  /// For example "model.merges[3]"; empty if the error concerns the whole file.
  const std::string& field() const { return field_; }

 private:
  std::string file_, field_;
};

namespace detail {

/// Throws TokenizerError: "tokenizer: FILE: FIELD what".
[[noreturn]] WEFT_COLD inline void refuse_tokenizer(const std::string& file, const std::string& field, weft::detail::Words what) {
  std::string text = "tokenizer: " + weft::detail::shown(file) + ": ";
  if (!field.empty()) text += weft::detail::shown(field) + " ";
  weft::detail::append_to(text, what);
  throw TokenizerError(text, file, field);
}

}  // namespace detail

}  // namespace weft::hugging_face
