// SPDX-License-Identifier: Apache-2.0
#pragma once
// A check that all ranks have the same numbers, in one small all-reduce. If they differ, a second step finds the rank whose
// numbers are different.
//
//   if (!detail::same_on_all(ranks, words)) throw ... detail::first_difference(ranks, words).rank ...

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

/// True if every rank gives the same words. Collective.
WEFT_OUT_OF_LINE inline bool same_on_all(const Communicator& ranks, std::span<const std::uint64_t> words) {
  const std::uint64_t hash = hash_bytes(words.data(), words.size_bytes());
  std::array<std::uint64_t, 2> extremes{hash, ~hash};  // the largest one, and the smallest one's complement
  ranks.all_reduce(extremes, Reduction::max);
  return extremes[0] == ~extremes[1];
}

struct FirstDifference {
  int rank;          // the first rank whose words differ from those of rank 0
  std::size_t word;  // the first word that differs
  std::uint64_t on_first, on_rank;
};
WEFT_COLD inline FirstDifference first_difference(const Communicator& ranks, std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> all(words.size() * std::size_t(ranks.size()));
  ranks.all_gather(words, all);
  for (std::size_t i = words.size(); i < all.size(); ++i)
    if (all[i] != all[i % words.size()]) return {int(i / words.size()), i % words.size(), all[i % words.size()], all[i]};
  return {0, 0, 0, 0};
}

}  // namespace weft::detail
