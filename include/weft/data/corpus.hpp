// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text as bytes. Files are read whole, and the end of each file is reserved for validation, so that both parts mix the files
// equally. The vocabulary is the 256 bytes: no tokenizer, no download.
//
//   data::Corpus corpus = data::Corpus::read({"a.txt", "b.txt"}, {.validation_fraction = 0.1});
//   corpus.require(256);   // throws UsageError if a sequence of 256 does not fit

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/core/error.hpp>

namespace weft::data {

/// Options of Corpus.
struct CorpusOptions {
  double validation_fraction = 0.1;  ///< fraction of each file, at its end; in [0, 1)
};

/// A training part and a validation part of bytes.
class Corpus {
 public:
  /// Reads `files` in the given order. Throws UsageError if one is missing, not a regular file, unreadable, empty or too large
  /// for memory, or if the fraction is not in [0, 1).
  static Corpus read(const std::vector<std::string>& files, CorpusOptions options = {}) {
    if (files.empty()) throw UsageError("data: no file given");
    Corpus corpus(options);
    for (const auto& file : files) corpus.append(file, read_file(file, corpus.bytes()));
    return corpus;
  }
  /// `read` for paths. A template, because std::filesystem would add half a second to every program's compile time.
  template <class Path>
  static Corpus read(const std::vector<Path>& files, CorpusOptions options = {}) {
    return read(std::vector<std::string>(files.begin(), files.end()), options);
  }

  /// A corpus of one text. Throws UsageError if it is empty.
  static Corpus from_text(std::string_view text, CorpusOptions options = {}) {
    if (text.empty()) throw UsageError("data: the text is empty");
    Corpus corpus(options);
    corpus.append("text", text);
    return corpus;
  }

  std::span<const std::uint8_t> training() const { return {training_.data(), training_.size()}; }
  std::span<const std::uint8_t> validation() const { return {validation_.data(), validation_.size()}; }
  std::size_t files() const { return files_; }
  std::size_t bytes() const { return training_.size() + validation_.size(); }
  double validation_fraction() const { return fraction_; }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints, including the validation fraction.
  const DataIdentity& identity() const { return identity_; }

  /// Throws UsageError unless one sequence of `length` bytes and the next byte fit into the training part and, if there is one,
  /// into the validation part.
  void require(std::size_t length) const;

 private:
  explicit Corpus(CorpusOptions options) : fraction_(options.validation_fraction) {
    if (!(fraction_ >= 0 && fraction_ < 1))
      throw UsageError("data: the validation fraction is " + shown(fraction_) + ", it must be at least 0 and below 1");
    identity_.set("validation-fraction", fraction_);
  }

  static std::string read_file(const std::string& file, std::size_t before);

  void append(const std::string& name, std::string_view text);

  static std::string shown(double number);

  std::vector<std::uint8_t> training_, validation_;
  std::size_t files_ = 0;
  double fraction_ = 0;
  DataIdentity identity_;
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/corpus_impl.hpp>
#endif
