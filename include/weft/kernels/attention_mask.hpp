// SPDX-License-Identifier: Apache-2.0
#pragma once
// The keys that each query of attention can use: a pattern, the borders of packed documents, and arrays of the program. A pattern
// and borders give each query one range of keys, and both ends of the ranges increase from query to query. So kernels skip all
// blocks outside them: a window costs its width, packed documents cost the sum of their squares.
//
//   kernels::attention_forward(device, extents, in, {out, extents.width()}, lse, {.window = 1024}, {.documents = documents});

#include <cstddef>
#include <cstdint>

#include <Kokkos_Core.hpp>

#include <weft/kernels/detail/loops.hpp>
#include <weft/mesh/zigzag.hpp>

namespace weft {

/// The pattern of an attention: causal (language models) or full (`causal` false: encoders, vision transformers), with or without
/// a sliding window.
struct AttentionMask {
  bool causal = true;  ///< later tokens are hidden
  /// A query uses the last `window` keys up to and including its own (Mistral's sliding window); unless causal, also as many from
  /// its own on; 0: all.
  std::size_t window = 0;
  bool operator==(const AttentionMask&) const = default;
};

namespace kernels {

/// Arrays that hide keys in addition to the pattern; null arrays hide none. `visible` and `added` have one number per query and
/// key, at sequence * sequence_step + head * head_step + query * query_step + key; a step of 0 shares the numbers. For example,
/// keys that are padding are {.visible = keep, .sequence_step = keys}. With groups of sequences, such as the heads of a sample,
/// the first term is sequence / group * sequence_step + sequence % group * member_step. The gradient of `added`:
/// attention_mask_gradient.
template <class A>
struct MaskArrays {
  const std::int32_t* documents = nullptr;  ///< [sequences, length]: document of each token; a document's tokens are contiguous
  const std::uint8_t* visible = nullptr;    ///< 0: hidden
  const A* added = nullptr;                 ///< added to the scaled scores; -infinity hides
  std::size_t sequence_step = 0, head_step = 0, query_step = 0;
  std::size_t group = 1, member_step = 0;
};

/// The first token of the document of token i in a sequence, and one past the last.
KOKKOS_INLINE_FUNCTION std::size_t document_begin(const std::int32_t* documents, std::size_t i) {
  std::size_t low = 0, high = i;  // the first token of this number is in [low, high]
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (documents[middle] == documents[i]) high = middle;
    else low = middle + 1;
  }
  return low;
}
KOKKOS_INLINE_FUNCTION std::size_t document_end(const std::int32_t* documents, std::size_t length, std::size_t i) {
  std::size_t low = i + 1, high = length;  // the first token of another number is in [low, high]
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (documents[middle] == documents[i]) low = middle + 1;
    else high = middle;
  }
  return low;
}

/// Keys [first, end) of a block for each of its queries, [sequences, queries] each, both increasing from query to query; empty if
/// end <= first.
struct KeyRanges {
  std::int32_t *first = nullptr, *end = nullptr;
};

/// A block of queries and a block of keys. Their tokens may be a rank's part of each sequence (mesh/zigzag.hpp).
struct MaskedBlock {
  std::size_t sequences = 1;
  weft::detail::Zigzag queries;  ///< all queries of the rank; the block starts at `first_query`
  std::size_t first_query = 0, query_count = 0;
  weft::detail::Zigzag keys;
  std::size_t key_count = 0;  ///< the first keys of that rank
};

/// Writes the ranges of keys that pattern and documents allow. `documents` [sequences, length] are those of whole sequences, or
/// null.
template <class Exec>
void find_key_ranges(Device<Exec>& device, const AttentionMask& mask, const std::int32_t* documents, const MaskedBlock& block,
                     const KeyRanges& ranges) {
  const MaskedBlock b = block;
  const AttentionMask m = mask;
  std::int32_t *const first = ranges.first, *const end = ranges.end;
  detail::for_each(
      device, {"mask", b.sequences * b.query_count * 2 * sizeof(std::int32_t)}, b.sequences * b.query_count,
      KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t sequence = item / b.query_count, length = b.keys.length;
        const std::size_t position = b.queries.position(b.first_query + item % b.query_count);
        std::size_t from = 0, to = m.causal ? position + 1 : length;
        if (m.window != 0) {
          from = position + 1 > m.window ? position + 1 - m.window : 0;
          to = to - position > m.window ? position + m.window : to;
        }
        if (documents != nullptr) {
          const std::int32_t* const here = documents + sequence * b.queries.length;
          const std::size_t begin = document_begin(here, position), stop = document_end(here, length, position);
          from = from > begin ? from : begin;
          to = to < stop ? to : stop;
        }
        const std::size_t keys_before = b.keys.before(from), keys_up_to = b.keys.before(to);
        first[item] = std::int32_t(keys_before < b.key_count ? keys_before : b.key_count);
        end[item] = std::int32_t(keys_up_to < b.key_count ? keys_up_to : b.key_count);
      });
}

namespace detail {

/// A mask in the form that loops read: ranges, and arrays or null. Without ranges, only the shape's `causal` applies.
struct MaskView {
  const std::int32_t *first_key = nullptr, *end_key = nullptr;  // [sequences, length]
  const std::uint8_t* visible = nullptr;
  const void* added = nullptr;
  std::size_t sequence_step = 0, head_step = 0, query_step = 0, group = 1, member_step = 0;

  KOKKOS_INLINE_FUNCTION bool ranges() const { return first_key != nullptr; }
  KOKKOS_INLINE_FUNCTION bool arrays() const { return visible != nullptr || added != nullptr; }
  /// The index in `visible` and `added` of a query's first key.
  KOKKOS_INLINE_FUNCTION std::size_t place(std::size_t sequence, std::size_t head, std::size_t query) const {
    return sequence / group * sequence_step + sequence % group * member_step + head * head_step + query * query_step;
  }
  /// The term added to the scaled score of the key at `place`.
  template <class A>
  KOKKOS_INLINE_FUNCTION A term(std::size_t place) const {
    if (visible != nullptr && visible[place] == 0) return -Kokkos::Experimental::infinity_v<A>;
    return added != nullptr ? static_cast<const A*>(added)[place] : A(0);
  }
};

}  // namespace detail
}  // namespace kernels

}  // namespace weft
