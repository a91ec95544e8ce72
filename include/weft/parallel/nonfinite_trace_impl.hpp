// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/nonfinite_trace.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <cstdint>
#include <string_view>

#include <weft/comm/gather_lists.hpp>
#include <weft/core/inline.hpp>
#include <weft/parallel/nonfinite_trace.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::vector<NonfiniteGradient> gather_nonfinite(const Communicator& ranks,
                                                                      const std::vector<NonfiniteGradient>& mine) {
  std::string names;  // each with a zero behind it
  std::vector<std::uint64_t> micro_batches;
  for (const NonfiniteGradient& found : mine) {
    names.append(found.parameter).push_back('\0');
    micro_batches.push_back(found.micro_batch);
  }
  const auto all_names = gather_lists(ranks, bytes_of(names));
  const auto all_micro_batches = gather_lists(ranks, std::span<const std::uint64_t>(micro_batches));
  std::vector<NonfiniteGradient> all;
  for (std::size_t rank = 0; rank < all_names.size(); ++rank) {
    const std::vector<std::string_view> parameters = split_at_zeros(all_names[rank]);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      all.push_back({int(rank), std::string(parameters[i]), all_micro_batches[rank][i]});
  }
  return all;
}

}  // namespace weft::detail
