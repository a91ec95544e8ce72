// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sorting, the dropping and the rehearsed choice of rows. Definitions for kernels/expert_assignments.hpp.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/expert_assignments.hpp>

namespace weft::detail {

WEFT_INLINE Assignments assign(std::span<const std::int32_t> chosen, std::size_t experts, const std::vector<char>& kept,
                               std::size_t grain) {
  Assignments made{{}, std::vector<std::int32_t>(chosen.size(), -1), std::vector<std::uint64_t>(experts, 0)};
  const auto keeps = [&](std::size_t slot) { return kept.empty() || kept[slot]; };
  for (std::size_t slot = 0; slot < chosen.size(); ++slot)
    if (keeps(slot)) ++made.counts[static_cast<std::size_t>(chosen[slot])];
  for (std::uint64_t& count : made.counts) count = filled(count, grain);
  std::vector<std::uint64_t> next(experts, 0);
  std::exclusive_scan(made.counts.begin(), made.counts.end(), next.begin(), std::uint64_t(0));
  made.order.resize(static_cast<std::size_t>(std::accumulate(made.counts.begin(), made.counts.end(), std::uint64_t(0))), -1);
  for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
    if (!keeps(slot)) continue;
    const std::uint64_t at = next[static_cast<std::size_t>(chosen[slot])]++;
    made.order[at] = static_cast<std::int32_t>(slot);
    made.place[slot] = static_cast<std::int32_t>(at);
  }
  return made;
}

WEFT_INLINE std::pair<std::size_t, std::size_t> Assignments::run_of(std::size_t expert, std::size_t first_slot,
                                                                    std::size_t slots) const {
  const auto at = counts.begin() + std::ptrdiff_t(expert);
  const auto begin = order.begin() + std::ptrdiff_t(std::accumulate(counts.begin(), at, std::uint64_t(0)));
  const auto first_from = [&](std::size_t slot) {  // rows of zeros come last, as -1 without its sign does
    return std::lower_bound(begin, begin + std::ptrdiff_t(*at), slot,
                            [](std::int32_t entry, std::size_t least) { return std::uint32_t(entry) < least; });
  };
  const auto from = first_from(first_slot);
  return {std::size_t(from - order.begin()), std::size_t(first_from(first_slot + slots) - from)};
}

WEFT_COLD WEFT_INLINE void rehearse_choice(std::span<std::int32_t> chosen, std::size_t experts, std::size_t k, double skew) {
  const double busy = std::min(1.0, skew * double(k) / double(experts));  // rows that choose expert 0
  const auto busy_before = [&](std::size_t row) { return std::floor(busy * double(row) + 1e-9); };
  std::size_t next = 0;  // cycles through the other experts
  for (std::size_t row = 0; row * k < chosen.size(); ++row) {
    std::size_t slot = row * k;
    if (busy_before(row + 1) > busy_before(row)) chosen[slot++] = 0;
    for (; slot < (row + 1) * k; ++slot) chosen[slot] = std::int32_t(1 + next++ % (experts - 1));
  }
}

WEFT_INLINE std::vector<char> within_capacity(const std::vector<Candidate>& all, std::size_t capacity, nn::Drop drop,
                                              std::size_t first, std::size_t count) {
  std::vector<std::uint32_t> sorted(all.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  const auto key = [&](std::uint32_t i) {
    const Candidate& c = all[i];
    return std::tuple(c.group, c.expert, drop == nn::Drop::by_probability ? -c.weight : 0.0, c.row);
  };
  std::sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  std::vector<char> kept(count, 0);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const Candidate& c = all[sorted[i]];
    const bool same = i > 0 && all[sorted[i - 1]].group == c.group && all[sorted[i - 1]].expert == c.expert;
    taken = same ? taken + 1 : 1;
    if (taken <= capacity && sorted[i] >= first && sorted[i] < first + count) kept[sorted[i] - first] = 1;
  }
  return kept;
}

}  // namespace weft::detail
