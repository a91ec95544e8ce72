// SPDX-License-Identifier: Apache-2.0
#pragma once
// The data of a run, and each rank's batches: the bytes of text files, in sequences that begin anywhere, or the tokens of .bin
// files, in windows that each occur once per epoch. The end of every file is reserved for validation.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/data_identity.hpp>
#include <weft/core/error.hpp>
#include <weft/data/batches.hpp>
#include <weft/data/corpus.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/source_files.hpp>
#include <weft/data/token_windows.hpp>

#include "options.hpp"

namespace train_gpt {

/// The windows of several token files as one dataset.
class TokenFiles {
 public:
  using Fields = weft::data::TokenWindows::Fields;

  explicit TokenFiles(std::size_t sequence) : sequence_(sequence) {}
  /// Throws UsageError if not even one window fits.
  void add(weft::data::Tokens tokens) {
    tokens_ += tokens.size();
    files_.emplace_back(std::move(tokens), weft::data::WindowOptions{sequence_});
    ends_.push_back(size() + files_.back().size());
  }
  std::size_t files() const { return files_.size(); }
  std::size_t tokens() const { return tokens_; }
  std::size_t sequence() const { return sequence_; }
  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  void shapes(Fields::Shapes& shapes) const { shapes[weft::data::tokens] = shapes[weft::data::targets] = {sequence_}; }
  void load(std::size_t index, const Fields::Sample& sample) const {
    const auto file = std::size_t(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    files_[file].load(file == 0 ? index : index - ends_[file - 1], sample);
  }

 private:
  std::vector<weft::data::TokenWindows> files_;
  std::vector<std::size_t> ends_;  // number of windows up to the end of each file
  std::size_t sequence_, tokens_ = 0;
};

/// The data shared by all ranks: exactly one of the two.
struct Data {
  std::shared_ptr<const weft::data::Corpus> text;
  std::shared_ptr<const TokenFiles> training, validation;
  std::vector<weft::data::Tokens> token_files;

  bool of_bytes() const { return text != nullptr; }
  std::size_t files() const { return text ? text->files() : training->files(); }
  std::size_t training_size() const { return text ? text->training().size() : training->tokens(); }
  /// The types of the token files, with the reasons: "uint32 (its header says so)".
  std::vector<std::string> token_types() const {
    std::vector<std::string> types;
    for (const weft::data::Tokens& tokens : token_files) {
      std::string type =
          (tokens.type() == weft::data::TokenType::uint32 ? "uint32 (" : "uint16 (") + std::string(tokens.reason()) + ")";
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(std::move(type));
    }
    return types;
  }
  std::size_t validation_size() const { return text ? text->validation().size() : validation->tokens(); }
};

/// Shortens a default sequence length to a power of two for which `size` bytes or tokens, and one more, are enough.
inline void shorten_sequence(Options& o, std::size_t size) {
  if (!o.sequence_given && size > 1 && size <= std::size_t(o.sequence)) o.sequence = std::int64_t(std::bit_floor(size - 1));
}

/// Reads the files that the options name, or weft's own text in its checkout. Throws UsageError.
inline Data read_data(Options& o, const std::string& checkout) {
  Data data;
  if (o.of_tokens()) {
    std::vector<std::size_t> kept_back;
    weft::DataIdentity identity;
    for (const std::string& file : o.data) {
      using weft::data::TokenType;
      const auto tokens = weft::data::Tokens::open(file, {.type = o.token_type == "uint16"   ? TokenType::uint16
                                                                  : o.token_type == "uint32" ? TokenType::uint32
                                                                                             : TokenType::from_header,
                                                          .vocabulary = std::size_t(*o.vocabulary)});
      data.token_files.push_back(tokens);
      identity.add(tokens.identity());
      kept_back.push_back(std::size_t(std::floor(double(tokens.size()) * o.validation_fraction)));
      shorten_sequence(o, tokens.size() - kept_back.back());
      if (o.validation_fraction > 0) shorten_sequence(o, kept_back.back());
    }
    auto training = std::make_shared<TokenFiles>(std::size_t(o.sequence));
    auto validation = std::make_shared<TokenFiles>(std::size_t(o.sequence));
    for (std::size_t i = 0; i < kept_back.size(); ++i) {
      const weft::data::Tokens& tokens = data.token_files[i];
      training->add(tokens.part(0, tokens.size() - kept_back[i]));
      if (o.validation_fraction > 0) validation->add(tokens.part(tokens.size() - kept_back[i], kept_back[i]));
    }
    data.training = std::move(training);
    data.validation = std::move(validation);
    identity.set("validation-fraction", o.validation_fraction);
    o.data_identity = std::move(identity);
    return data;
  }
  std::vector<std::filesystem::path> files(o.data.begin(), o.data.end());
  if (files.empty()) files = weft::data::source_files(checkout);
  if (files.empty())
    throw weft::UsageError("data: the default corpus is weft's own text in '" + checkout +
                           "', which is not there: give files with --data");
  data.text = std::make_shared<const weft::data::Corpus>(weft::data::Corpus::read(files, {o.validation_fraction}));
  shorten_sequence(o, data.text->training().size());
  if (o.validation_fraction > 0) shorten_sequence(o, data.text->validation().size());
  data.text->require(std::size_t(o.sequence));
  o.data_identity = data.text->identity();
  return data;
}

/// Throws UsageError, the same on every rank, for the first token outside the vocabulary, before a training step would find it.
/// Each rank reads its part of every file.
inline void require_vocabulary(const weft::Communicator& ranks, const Data& data) {
  for (const weft::data::Tokens& tokens : data.token_files) {
    const std::size_t part = tokens.size() / std::size_t(ranks.size()), first = part * std::size_t(ranks.rank());
    const std::size_t end = ranks.rank() + 1 == ranks.size() ? tokens.size() : first + part;
    const std::size_t found = tokens.find_unknown(first, end - first);
    std::int64_t place = std::int64_t(found == end ? tokens.size() : found);
    ranks.all_reduce(std::span(&place, 1), weft::Reduction::min);
    if (std::size_t(place) < tokens.size()) tokens.check(std::size_t(place), 1);
  }
}

/// One rank's batches. Training steps must be requested in order.
class RankData {
  static constexpr std::size_t most_validation_sequences = 256;  // spread evenly over the validation part

 public:
  /// `first_step`: first step of a resumed run.
  RankData(weft::data::Share share, const Data& data, const Options& o, std::uint64_t first_step = 0)
      : share_(share), step_(first_step) {
    const auto global_batch = std::size_t(*o.global_batch), micro_batch = std::size_t(*o.micro_batch);
    if (data.of_bytes()) {
      text_.emplace(share, data.text,
                    weft::data::BatchOptions{.sequence = std::size_t(o.sequence),
                                             .global_batch = global_batch,
                                             .micro_batch = micro_batch,
                                             .seed = std::uint64_t(o.seed),
                                             .validation_sequences = most_validation_sequences});
      return;
    }
    loader_.emplace(share, data.training,
                    weft::data::LoaderOptions{.global_batch = global_batch,
                                              .micro_batches = global_batch / share.size / micro_batch,
                                              .seed = std::uint64_t(o.seed),
                                              .first_step = first_step,
                                              .steps = std::uint64_t(o.steps) - std::min(first_step, std::uint64_t(o.steps))});
    validation_ = data.validation;
  }

  /// The share of the next step, from first_step on; valid until the next call.
  const weft::Batch& training() {
    if (text_) return batch_ = text_->training(step_++);
    if (!at_) at_.emplace(loader_->begin());
    else ++*at_;
    weft::data::copy_tokens(**at_, batch_);
    return batch_;
  }

  std::size_t validation_batches() const {
    const std::size_t batch = loader_ ? loader_->options().global_batch : 1;
    return text_ ? text_->validation_batches() : (validation_sequences() + batch - 1) / batch;
  }
  /// Number of targets in validation batch i over all data-parallel ranks: the weight of its mean loss.
  std::size_t validation_targets(std::size_t i) const {
    if (text_) return text_->validation_targets(i);
    const std::size_t batch = loader_->options().global_batch;
    return std::min(batch, validation_sequences() - i * batch) * length();
  }
  /// The share of validation batch i. Targets after the last sequence are -1, which losses ignore.
  weft::Batch validation(std::size_t i) const {
    if (text_) return text_->validation(i);
    const auto& options = loader_->options();
    weft::data::TokenWindows::Fields fields{.samples = options.global_batch / share_.size,
                                            .micro_batches = options.micro_batches};
    fields.first_sample = share_.rank * fields.samples;
    fields[weft::data::tokens].resize(fields.samples, {length()});
    std::ranges::fill(fields[weft::data::targets].resize(fields.samples, {length()}), -1);
    for (std::size_t s = 0; s < fields.samples; ++s) {
      const std::size_t sequence = i * options.global_batch + fields.first_sample + s;
      if (sequence < validation_sequences())
        validation_->load(sequence * validation_->size() / validation_sequences(), fields.sample(s));
    }
    return weft::data::token_batch(fields);
  }

 private:
  std::size_t validation_sequences() const { return std::min(validation_->size(), most_validation_sequences); }
  std::size_t length() const { return validation_->sequence(); }

  weft::data::Share share_;
  std::optional<weft::data::Batches> text_;
  std::optional<weft::data::Loader<TokenFiles>> loader_;
  std::optional<weft::data::Loader<TokenFiles>::iterator> at_;
  std::shared_ptr<const TokenFiles> validation_;
  weft::Batch batch_;
  std::uint64_t step_;
};

}  // namespace train_gpt
