// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gathers each rank's list (texts, names, requests; lengths may differ) or number (an extent, a count) to every rank.
//
//   for (const std::vector<std::uint64_t>& words : detail::gather_lists(ranks, std::span<const std::uint64_t>(mine))) ...

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

/// [ranks.size()] numbers, in the order of the ranks. Collective.
inline std::vector<std::size_t> gather_numbers(const Communicator& ranks, std::size_t mine) {
  const std::uint64_t number = mine;
  std::vector<std::uint64_t> all(std::size_t(ranks.size()));
  ranks.all_gather(std::span(&number, 1), all);
  return {all.begin(), all.end()};
}

/// [ranks.size()] lists, in the order of the ranks. Collective: the lengths first, then the elements, if there are any.
template <class T>
WEFT_COLD std::vector<std::vector<T>> gather_lists(const Communicator& ranks, std::span<const T> mine) {
  if (ranks.size() == 1) return {std::vector<T>(mine.begin(), mine.end())};
  const std::vector<std::size_t> counts = gather_numbers(ranks, mine.size());
  std::vector<T> all(std::accumulate(counts.begin(), counts.end(), std::size_t(0)));
  if (!all.empty()) ranks.all_gather_v(mine, all, counts);
  std::vector<std::vector<T>> lists;
  auto at = all.begin();
  for (const std::size_t count : counts) {
    lists.emplace_back(at, at + std::ptrdiff_t(count));
    at += std::ptrdiff_t(count);
  }
  return lists;
}

/// The characters of a text, to be gathered.
inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// The texts of a list in which each has a zero behind it.
inline std::vector<std::string_view> split_at_zeros(std::span<const std::uint8_t> list) {
  std::vector<std::string_view> texts;
  for (auto begin = list.begin(); begin != list.end();) {
    const auto end = std::find(begin, list.end(), std::uint8_t(0));
    texts.emplace_back(reinterpret_cast<const char*>(&*begin), std::size_t(end - begin));
    begin = end == list.end() ? end : end + 1;
  }
  return texts;
}

}  // namespace weft::detail
