// SPDX-License-Identifier: Apache-2.0
#pragma once
// The data of a run, and each rank's batches: the bytes of text files, in sequences that begin anywhere; or the tokens of .bin
// files or conversations of .jsonl files, in windows that each occur once per epoch. Validation has the ends of these files, or
// files of its sets.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
#include <weft/data/dataset.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/mixture.hpp>
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
  const weft::data::TokenWindows& file(std::size_t i) const { return files_[i]; }
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

/// Packed samples of a format that only conversations.cpp reads.
struct PackedSamples {
  using Fields = weft::data::PackedDocuments::Fields;

  std::size_t count, sequence, files, tokens;
  std::function<void(std::size_t index, const Fields::Sample& sample)> read;

  std::size_t size() const { return count; }
  void shapes(Fields::Shapes& shapes) const {
    shapes[weft::data::tokens] = shapes[weft::data::targets] = {sequence};
    shapes[weft::data::documents] = shapes[weft::data::positions] = {sequence};
  }
  void load(std::size_t index, const Fields::Sample& sample) const { read(index, sample); }
};

/// Sequences that validate a model: the ends of the training files, or one file of --validation.
struct ValidationSet {
  std::string name;                     ///< the file's; empty: the ends of the training files
  std::size_t size = 0, sequences = 0;  ///< bytes or tokens; whole sequences
  /// Copies tokens, targets and documents of a sequence into a batch, from token `at` on.
  std::function<void(std::size_t sequence, weft::Batch& batch, std::size_t at)> copy;
};

/// The data shared by all ranks: exactly one of text, tokens and conversations.
struct Data {
  std::shared_ptr<const weft::data::Corpus> text;
  std::shared_ptr<const TokenFiles> training;
  std::shared_ptr<const weft::data::Mixture<TokenFiles::Fields>> mixture;  ///< of `training`'s files by --weights; else null
  std::shared_ptr<const PackedSamples> conversations;
  std::vector<ValidationSet> validation;
  std::vector<weft::data::Tokens> token_files;

  std::size_t files() const { return text ? text->files() : training ? training->files() : conversations->files; }
  std::size_t training_size() const {
    return text ? text->training().size() : training ? training->tokens() : conversations->tokens;
  }
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
  std::size_t validation_size() const {
    std::size_t size = 0;
    for (const ValidationSet& set : validation) size += set.size;
    return size;
  }
};

/// A validation set of all windows of a dataset with `size` tokens.
template <class D>
ValidationSet set_of(std::string name, std::shared_ptr<const D> samples, std::size_t size) {
  return {std::move(name), size, samples->size(), [samples](std::size_t sequence, weft::Batch& batch, std::size_t at) {
            typename D::Fields fields;
            fields.resize(1, weft::data::detail::shapes_of(*samples));
            samples->load(sequence, fields.sample(0));
            const weft::Batch one = weft::data::token_batch(fields);
            std::ranges::copy(one.tokens, batch.tokens.begin() + std::ptrdiff_t(at));
            std::ranges::copy(one.targets, batch.targets.begin() + std::ptrdiff_t(at));
            if (one.documents.empty()) return;
            batch.documents.resize(batch.tokens.size(), -1);
            std::ranges::copy(one.documents, batch.documents.begin() + std::ptrdiff_t(at));
          }};
}

/// A validation set of a text's bytes, `text`, which `corpus` holds.
inline ValidationSet set_of(std::string name, std::shared_ptr<const weft::data::Corpus> corpus,
                            std::span<const std::uint8_t> text, std::size_t sequence) {
  const std::size_t sequences = text.empty() ? 0 : (text.size() - 1) / sequence;
  return {std::move(name), text.size(), sequences,
          [corpus, text, sequence](std::size_t index, weft::Batch& batch, std::size_t at) {
            const auto bytes = text.subspan(index * sequence, sequence + 1);
            std::copy(bytes.begin(), bytes.end() - 1, batch.tokens.begin() + std::ptrdiff_t(at));
            std::copy(bytes.begin() + 1, bytes.end(), batch.targets.begin() + std::ptrdiff_t(at));
          }};
}

/// Reads conversations, and chooses their template. Throws UsageError. Defined in conversations.cpp.
Data read_conversations(Options& o);

/// Shortens a default sequence length to a power of two for which `size` bytes or tokens, and one more, are enough.
inline void shorten_sequence(Options& o, std::size_t size) {
  if (!o.sequence_given && size > 1 && size <= std::size_t(o.sequence)) o.sequence = std::int64_t(std::bit_floor(size - 1));
}

/// Opens a token file as the options describe it. Throws UsageError.
inline weft::data::Tokens open_tokens(const Options& o, const std::string& file) {
  using weft::data::TokenType;
  return weft::data::Tokens::open(file, {.type = o.token_type == "uint16"   ? TokenType::uint16
                                                 : o.token_type == "uint32" ? TokenType::uint32
                                                                            : TokenType::from_header,
                                         .vocabulary = std::size_t(*o.vocabulary)});
}

inline Data read_tokens(Options& o) {
  Data data;
  std::vector<std::size_t> kept_back;
  weft::DataIdentity identity;
  for (const std::string& file : o.data) {
    const auto tokens = open_tokens(o, file);
    data.token_files.push_back(tokens);
    identity.add(tokens.identity());
    kept_back.push_back(std::size_t(std::floor(double(tokens.size()) * o.validation_fraction)));
    shorten_sequence(o, tokens.size() - kept_back.back());
    if (o.validation_fraction > 0) shorten_sequence(o, kept_back.back());
  }
  for (const std::string& file : o.validation) {
    data.token_files.push_back(open_tokens(o, file));
    shorten_sequence(o, data.token_files.back().size());
  }
  auto training = std::make_shared<TokenFiles>(std::size_t(o.sequence));
  auto ends = std::make_shared<TokenFiles>(std::size_t(o.sequence));
  using Mixture = weft::data::Mixture<TokenFiles::Fields>;
  std::vector<Mixture::Part> parts;
  for (std::size_t i = 0; i < kept_back.size(); ++i) {
    const weft::data::Tokens& tokens = data.token_files[i];
    training->add(tokens.part(0, tokens.size() - kept_back[i]));
    if (!o.weights.empty()) parts.emplace_back(training->file(i), o.weights[i]);
    if (o.validation_fraction > 0) ends->add(tokens.part(tokens.size() - kept_back[i], kept_back[i]));
  }
  if (o.validation_fraction > 0) data.validation.push_back(set_of<TokenFiles>("", ends, ends->tokens()));
  for (std::size_t i = 0; i < o.validation.size(); ++i) {
    auto file = std::make_shared<TokenFiles>(std::size_t(o.sequence));
    file->add(data.token_files[kept_back.size() + i]);
    o.validation_identity.add(data.token_files[kept_back.size() + i].identity());
    data.validation.push_back(set_of<TokenFiles>(o.validation[i], file, file->tokens()));
  }
  data.training = std::move(training);
  identity.set("validation-fraction", o.validation_fraction);
  if (!parts.empty()) {
    data.mixture = std::make_shared<const Mixture>(std::move(parts), weft::data::MixtureOptions{.seed = std::uint64_t(o.seed)});
    identity.set("weights", o.weights_text());
  }
  o.data_identity = std::move(identity);
  return data;
}

inline Data read_text(Options& o, const std::string& checkout) {
  using weft::data::Corpus;
  Data data;
  std::vector<std::filesystem::path> files(o.data.begin(), o.data.end());
  if (files.empty()) files = weft::data::source_files(checkout);
  if (files.empty())
    throw weft::UsageError("data: the default corpus is weft's own text in '" + checkout +
                           "', which is not there: give files with --data");
  data.text = std::make_shared<const Corpus>(Corpus::read(files, {o.validation_fraction}));
  shorten_sequence(o, data.text->training().size());
  if (o.validation_fraction > 0) shorten_sequence(o, data.text->validation().size());
  std::vector<std::shared_ptr<const Corpus>> sets;
  for (const std::string& file : o.validation) {
    sets.push_back(std::make_shared<const Corpus>(Corpus::read({file}, {0})));
    shorten_sequence(o, sets.back()->training().size());
  }
  const auto sequence = std::size_t(o.sequence);
  data.text->require(sequence);
  if (o.validation_fraction > 0) data.validation.push_back(set_of("", data.text, data.text->validation(), sequence));
  for (std::size_t i = 0; i < sets.size(); ++i) {
    sets[i]->require(sequence);
    o.validation_identity.add(sets[i]->identity());
    data.validation.push_back(set_of(o.validation[i], sets[i], sets[i]->training(), sequence));
  }
  o.data_identity = data.text->identity();
  return data;
}

/// Reads the files that the options name, or weft's own text in its checkout. Throws UsageError.
inline Data read_data(Options& o, const std::string& checkout) {
  return o.of_conversations() ? read_conversations(o) : o.of_tokens() ? read_tokens(o) : read_text(o, checkout);
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
  static constexpr std::size_t most_validation_sequences = 256;  // of a set, spread evenly over it

 public:
  /// `first_step`: first step of a resumed run.
  RankData(weft::data::Share share, const Data& data, const Options& o, std::uint64_t first_step = 0)
      : share_(share),
        global_batch_(std::size_t(*o.global_batch)),
        micro_batches_(global_batch_ / share.size / std::size_t(*o.micro_batch)),
        sequence_(std::size_t(o.sequence)),
        validation_(data.validation) {
    const weft::data::LoaderOptions options{.global_batch = global_batch_,
                                            .micro_batches = micro_batches_,
                                            .seed = std::uint64_t(o.seed),
                                            .first_step = first_step,
                                            .steps = std::uint64_t(o.steps) - std::min(first_step, std::uint64_t(o.steps))};
    if (data.mixture) {
      take(data.mixture, options);
    } else if (data.training) {
      take(data.training, options);
    } else if (data.conversations) {
      take(data.conversations, options);
    } else {
      const weft::data::Batches text(share, data.text,
                                     {.sequence = sequence_,
                                      .global_batch = global_batch_,
                                      .micro_batch = std::size_t(*o.micro_batch),
                                      .seed = std::uint64_t(o.seed)});
      next_ = [text, step = first_step](weft::Batch& batch) mutable { batch = text.training(step++); };
    }
  }

  /// The share of the next step, from first_step on; valid until the next call.
  const weft::Batch& training() { return next_(batch_), batch_; }

  std::span<const ValidationSet> validation_sets() const { return validation_; }
  std::size_t validation_batches(const ValidationSet& set) const {
    return (validation_sequences(set) + global_batch_ - 1) / global_batch_;
  }
  /// Number of targets in validation batch i over all data-parallel ranks: the weight of its mean loss.
  std::size_t validation_targets(const ValidationSet& set, std::size_t i) const {
    const weft::Batch whole = validation_part(set, i * global_batch_, global_batch_);
    return std::size_t(std::ranges::count_if(whole.targets, [](std::int32_t target) { return target >= 0; }));
  }
  /// The share of validation batch i. Targets after the last sequence are -1, which losses ignore.
  weft::Batch validation(const ValidationSet& set, std::size_t i) const {
    const std::size_t count = global_batch_ / share_.size, first = share_.rank * count;
    weft::Batch batch = validation_part(set, i * global_batch_ + first, count);
    batch.micro_batches = micro_batches_;
    batch.first_sequence = first;
    return batch;
  }

 private:
  std::size_t validation_sequences(const ValidationSet& set) const { return std::min(set.sequences, most_validation_sequences); }
  /// `count` of the used sequences, from `first` on.
  weft::Batch validation_part(const ValidationSet& set, std::size_t first, std::size_t count) const {
    weft::Batch batch{.sequences = count, .length = sequence_};
    batch.tokens.assign(count * sequence_, 0);
    batch.targets.assign(count * sequence_, -1);
    const std::size_t used = validation_sequences(set);
    for (std::size_t s = 0; s < count && first + s < used; ++s)
      set.copy((first + s) * set.sequences / used, batch, s * sequence_);
    return batch;
  }

  template <class D>
  void take(std::shared_ptr<const D> samples, const weft::data::LoaderOptions& options) {
    struct Steps {
      weft::data::Loader<D> loader;
      std::optional<typename weft::data::Loader<D>::iterator> at;
    };
    const auto steps = std::make_shared<Steps>(Steps{{share_, std::move(samples), options}, {}});
    next_ = [steps](weft::Batch& batch) {
      if (!steps->at) steps->at.emplace(steps->loader.begin());
      else ++*steps->at;
      weft::data::copy_tokens(**steps->at, batch);
    };
  }

  weft::data::Share share_;
  std::size_t global_batch_, micro_batches_, sequence_;
  std::vector<ValidationSet> validation_;
  std::function<void(weft::Batch&)> next_;
  weft::Batch batch_;
};

}  // namespace train_gpt
