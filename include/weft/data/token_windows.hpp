// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens as samples for language models. TokenWindows divides a long sequence into windows of equal length without overlap.
// PackedDocuments does so for documents with a separator token between them. It also gives each token's document in the window
// and its position in the document, so that attention and positions can restart there.
//
//   data::TokenWindows train(data::Tokens::open("train.bin"), {.sequence = 1024});
//   data::PackedDocuments documents(data::Tokens::open("train.bin"), {.sequence = 1024, .separator = 50256});
//   for (auto&& batch : data::Loader(mesh, train, {.global_batch = 16})) model.train_step(data::token_batch(batch));

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/tokens.hpp>

namespace weft::data {

inline constexpr Field<"tokens", std::int32_t, SequenceDim<1>> tokens;  ///< [sequence]
inline constexpr Field<"targets", std::int32_t, SequenceDim<1>>
    targets;  ///< [sequence]: the next token; negative targets are ignored
inline constexpr Field<"documents", std::int32_t, SequenceDim<1>>
    documents;  ///< [sequence]: the document's number in the window, from 0; -1 for padding
inline constexpr Field<"positions", std::int32_t, SequenceDim<1>>
    positions;  ///< [sequence]: position in the document, from 0 in each window

/// Options of TokenWindows.
struct WindowOptions {
  std::size_t sequence = 256;  ///< tokens per sample
};

/// Sample i holds the tokens from i * sequence on, and the token after each as its target.
class TokenWindows {
 public:
  using Fields = FieldBatch<data::tokens, data::targets>;

  /// Throws UsageError if one window and the next token do not fit.
  TokenWindows(Tokens all, WindowOptions options);

  std::size_t size() const { return (all_.size() - 1) / sequence_; }
  void shapes(Fields::Shapes& shapes) const { shapes[data::tokens] = shapes[data::targets] = {sequence_}; }
  void load(std::size_t index, const Fields::Sample& sample) const {
    all_.copy(index * sequence_, sample[data::tokens]);
    all_.copy(index * sequence_ + 1, sample[data::targets]);
  }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints.
  DataIdentity identity() const;

 private:
  Tokens all_;
  std::size_t sequence_;
};

/// The end of a window of packed documents.
enum class Packing : std::uint8_t {
  cut,    ///< windows are contiguous; a document may continue in the next window
  whole,  ///< a document that does not fit starts the next window, after padding; only documents longer than a window are divided
};

/// Options of PackedDocuments.
struct PackingOptions {
  std::size_t sequence = 256;    ///< tokens per sample
  std::int32_t separator = 0;    ///< the token between documents
  bool separator_first = false;  ///< it begins each document, as in llm.c's files, instead of ending it
  Packing packing = Packing::cut;
  /// Ranks of cp. More than 1 orders the documents of each window so that these ranks have about equal attention work
  /// (data/document_order.hpp). A window's documents stay the same, so a run may resume with another number.
  std::size_t balance_cp = 1;
};

/// Windows of documents. The last token of a document has the target -1, since the next token belongs to another document.
class PackedDocuments {
 public:
  using Fields = FieldBatch<data::tokens, data::targets, data::documents, data::positions>;

  /// With whole documents, reads all tokens once. Throws UsageError if one window does not fit, or if whole documents are
  /// requested and no separator is found. Throws ShapeError unless balance_cp divides a window into two chunks for each rank.
  PackedDocuments(Tokens all, PackingOptions options);

  std::size_t size() const {
    return options_.packing == Packing::cut ? (all_.size() - 1) / options_.sequence : windows_.size() - 1;
  }
  void shapes(Fields::Shapes& shapes) const {
    shapes[data::tokens] = shapes[data::targets] = shapes[data::documents] = shapes[data::positions] = {options_.sequence};
  }
  void load(std::size_t index, const Fields::Sample& sample) const;
  DataIdentity identity() const;

 private:
  /// True if a document ends between tokens i and i + 1.
  bool border_after(std::size_t i) const {
    return options_.separator_first ? i + 1 < all_.size() && all_[i + 1] == options_.separator : all_[i] == options_.separator;
  }
  void find_windows();
  /// The first token of a document in its window, and its number there.
  struct Place {
    std::size_t begin = 0;
    std::int32_t number = 0;
  };
  /// The places of the documents of a window of `used` tokens from `first` on, in balanced order.
  std::vector<Place> places(std::size_t first, std::size_t used) const;

  Tokens all_;
  PackingOptions options_;
  std::vector<std::size_t> windows_;  // for whole documents: first token of each window, and end of the last
};

namespace detail {

template <class B>
inline constexpr bool has_documents = false;
template <auto... fields>
inline constexpr bool has_documents<FieldBatch<fields...>> =
    (std::is_same_v<std::remove_cvref_t<decltype(fields)>, std::remove_cvref_t<decltype(documents)>> || ...);

}  // namespace detail

/// Copies a batch of tokens and targets, and of documents if it has them, into a Batch, the input of weft's language models.
/// Reusing `into` reuses its memory.
template <class B>
void copy_tokens(const B& from, Batch& into) {
  const auto token = from[tokens].values(), target = from[targets].values();
  into.tokens.assign(token.begin(), token.end());
  into.targets.assign(target.begin(), target.end());
  into.sequences = from.samples;
  into.length = from[tokens].shape().size();
  into.micro_batches = from.micro_batches;
  into.first_sequence = from.first_sample;
  into.step = from.step;
  into.differing.clear();
  into.documents.clear();
  if constexpr (detail::has_documents<std::remove_cvref_t<B>>) {
    const auto document = from[documents].values();
    into.documents.assign(document.begin(), document.end());
  }
}
/// A batch of TokenWindows or PackedDocuments as a model of tokens takes it.
template <class B>
Batch token_batch(const B& from) {
  Batch batch;
  copy_tokens(from, batch);
  return batch;
}

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/token_windows_impl.hpp>
#endif
