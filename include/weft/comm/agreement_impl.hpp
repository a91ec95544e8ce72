// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/agreement.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/agreement.hpp>
#include <weft/core/inline.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE bool same_on_all(const Communicator& ranks, std::span<const std::uint64_t> words) {
  const std::uint64_t hash = hash_bytes(words.data(), words.size_bytes());
  std::array<std::uint64_t, 2> extremes{hash, ~hash};  // the largest one, and the smallest one's complement
  ranks.all_reduce(extremes, Reduction::max);
  return extremes[0] == ~extremes[1];
}

WEFT_COLD WEFT_INLINE FirstDifference first_difference(const Communicator& ranks, std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> all(words.size() * std::size_t(ranks.size()));
  ranks.all_gather(words, all);
  for (std::size_t i = words.size(); i < all.size(); ++i)
    if (all[i] != all[i % words.size()]) return {int(i / words.size()), i % words.size(), all[i % words.size()], all[i]};
  return {0, 0, 0, 0};
}

}  // namespace weft::detail
