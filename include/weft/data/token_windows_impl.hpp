// SPDX-License-Identifier: Apache-2.0
#pragma once
// The windows of tokens and documents. Definitions for data/token_windows.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/document_order.hpp>
#include <weft/data/token_windows.hpp>
#include <weft/mesh/zigzag.hpp>

namespace weft::data {
namespace detail {

WEFT_INLINE void require_window(const Tokens& all, std::size_t sequence) {
  if (sequence == 0) throw_error<UsageError>({"data: sequence(0) must be at least 1"});
  if (all.size() <= sequence)
    throw_error<UsageError>({"data: too short: '", all.file(), "' has ", all.size(), " tokens, a sequence of ", sequence,
                             " needs ", sequence, " and the one after it"});
}

}  // namespace detail

WEFT_INLINE TokenWindows::TokenWindows(Tokens all, WindowOptions options) : all_(std::move(all)), sequence_(options.sequence) {
  detail::require_window(all_, sequence_);
}

WEFT_INLINE PackedDocuments::PackedDocuments(Tokens all, PackingOptions options) : all_(std::move(all)), options_(options) {
  detail::require_window(all_, options_.sequence);
  weft::detail::Zigzag{options_.sequence, options_.balance_cp, 0}.require();
  if (options_.packing == Packing::whole) find_windows();
}

WEFT_INLINE DataIdentity TokenWindows::identity() const {
  DataIdentity identity = all_.identity();
  identity.set("sequence", double(sequence_));
  return identity;
}
WEFT_INLINE DataIdentity PackedDocuments::identity() const {
  DataIdentity identity = all_.identity();
  identity.set("sequence", double(options_.sequence));
  identity.set("separator", double(options_.separator));
  identity.set("packing", weft::detail::joined({options_.packing == Packing::cut ? "cut" : "whole",
                                                options_.separator_first ? ", separator first" : ""}));
  return identity;
}

WEFT_INLINE void PackedDocuments::find_windows() {
  windows_ = {0};
  std::size_t document = 0, borders = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool border = border_after(i), last = i + 1 == all_.size();
    borders += border;
    const std::size_t end = i + 1;
    // This document, or its part up to here, does not fit after the window's earlier documents.
    if (end - windows_.back() > options_.sequence && document > windows_.back()) windows_.push_back(document);
    if (end - document == options_.sequence || border || last) document = end;
    if (end - windows_.back() == options_.sequence && document == end) windows_.push_back(end);
  }
  if (borders == 0)
    throw_error<UsageError>(
        {"data: '", all_.file(), "' has no separator(", options_.separator, ") between documents in ", all_.size(), " tokens"});
  if (windows_.back() != all_.size()) windows_.push_back(all_.size());
}

WEFT_INLINE std::vector<PackedDocuments::Place> PackedDocuments::places(std::size_t first, std::size_t used) const {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0, begin = 0; i < used; ++i)
    if (border_after(first + i) || i + 1 == used) lengths.push_back(i + 1 - begin), begin = i + 1;
  std::vector<Place> places(lengths.size());
  std::size_t begin = 0;
  std::int32_t number = 0;
  for (const std::size_t document : balanced_order(lengths, options_.sequence, options_.balance_cp)) {
    places[document] = {begin, number++};
    begin += lengths[document];
  }
  return places;
}

WEFT_INLINE void PackedDocuments::load(std::size_t index, const Fields::Sample& sample) const {
  const bool cut = options_.packing == Packing::cut;
  const std::size_t length = options_.sequence, first = cut ? index * length : windows_[index];
  const std::size_t used = cut ? length : windows_[index + 1] - first;
  const std::vector<Place> ordered = options_.balance_cp > 1 ? places(first, used) : std::vector<Place>();
  Place place;
  std::int32_t document = 0, position = 0;
  for (std::size_t i = 0; i < used; ++i) {
    const std::size_t at = first + i;
    const bool border = border_after(at);
    if (position == 0) place = ordered.empty() ? Place{i, document} : ordered[std::size_t(document)];
    const std::size_t to = place.begin + std::size_t(position);
    sample[data::tokens][to] = all_[at];
    sample[data::targets][to] = border || at + 1 == all_.size() ? -1 : all_[at + 1];
    sample[data::documents][to] = place.number;
    sample[data::positions][to] = position++;
    if (border) ++document, position = 0;
  }
  for (std::size_t i = used; i < length; ++i) {
    sample[data::tokens][i] = 0;
    sample[data::targets][i] = -1;
    sample[data::documents][i] = -1;
    sample[data::positions][i] = 0;
  }
}

}  // namespace weft::data
