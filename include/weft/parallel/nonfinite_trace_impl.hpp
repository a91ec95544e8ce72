// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/nonfinite_trace.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/parallel/nonfinite_trace.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::vector<NonfiniteGradient> gather_nonfinite(const Communicator& ranks,
                                                                      const std::vector<NonfiniteGradient>& mine) {
  std::string names;  // each with a zero behind it
  std::vector<std::uint64_t> micro;
  for (const NonfiniteGradient& found : mine) {
    names.append(found.parameter).push_back('\0');
    micro.push_back(found.micro_batch);
  }
  const std::uint64_t sizes[] = {names.size(), mine.size()};
  std::vector<std::uint64_t> all_sizes(2 * std::size_t(ranks.size()));
  ranks.all_gather(std::span(sizes), all_sizes);
  std::vector<std::size_t> bytes, counts;
  std::size_t all_bytes = 0, all_counts = 0;
  for (std::size_t i = 0; i < all_sizes.size(); i += 2) {
    all_bytes += bytes.emplace_back(all_sizes[i]);
    all_counts += counts.emplace_back(all_sizes[i + 1]);
  }
  std::vector<NonfiniteGradient> all;
  if (all_counts == 0) return all;
  std::vector<std::uint64_t> micro_batches(all_counts);
  ranks.all_gather_v(micro, micro_batches, counts);
  std::vector<std::uint8_t> text(all_bytes);
  ranks.all_gather_v(std::span(reinterpret_cast<const std::uint8_t*>(names.data()), names.size()), text, bytes);
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    for (std::size_t i = 0; i < counts[rank]; ++i) {
      NonfiniteGradient found{int(rank), {}, micro_batches[all.size()]};
      while (text[at] != 0) found.parameter += char(text[at++]);
      ++at;
      all.push_back(std::move(found));
    }
  return all;
}

}  // namespace weft::detail
