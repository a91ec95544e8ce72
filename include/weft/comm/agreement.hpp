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
bool same_on_all(const Communicator& ranks, std::span<const std::uint64_t> words);

struct FirstDifference {
  int rank;          // the first rank whose words differ from those of rank 0
  std::size_t word;  // the first word that differs
  std::uint64_t on_first, on_rank;
};
FirstDifference first_difference(const Communicator& ranks, std::span<const std::uint64_t> words);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/comm/agreement_impl.hpp>
#endif
