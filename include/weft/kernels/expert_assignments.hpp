// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rows go to which expert, as tables on the host: the order in which rows are packed for their experts, and who is dropped
// where an expert takes only so many. A few integers a row, compiled once for all types.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft {

namespace nn {

/// Who is dropped where an expert is full.
enum class Drop {
  none,            ///< nobody: experts take whatever comes
  by_probability,  ///< those of the lowest weight; of equal weights the later tokens
  by_position,     ///< the later tokens
};

/// Over which tokens an expert's capacity, and the balance that the auxiliary loss asks for, are counted.
enum class Level {
  sequence,     ///< each sequence alone: the same result in every layout and with any number of micro-batches
  micro_batch,  ///< a data rank's micro-batch, over tp and cp: depends on dp and on the number of micro-batches
  data,         ///< a micro-batch over all data ranks, too; capacity is then counted as for micro_batch
};

}  // namespace nn

namespace detail {

/// Tokens that an expert takes of a group: ceil(tokens · k / experts · factor).
inline std::size_t expert_capacity(std::size_t tokens, std::size_t k, std::size_t experts, double factor) {
  return static_cast<std::size_t>(std::ceil(double(tokens) * double(k) / double(experts) * factor - 1e-9));  // 5 and its rounding is 5
}

/// An expert's rows are filled up with zeros to a multiple of this: a library that makes a program for each shape of a product
/// would make one for each number of rows, at the price of several products.
template <class T>
inline constexpr std::size_t expert_grain = sizeof(T) < sizeof(double) ? 32 : 1;

inline std::uint64_t filled(std::uint64_t count, std::size_t grain) { return (count + grain - 1) / grain * grain; }

/// Where the slots of rows (row · k + which of its experts) go.
struct Assignments {
  std::vector<std::int32_t> order;   ///< slots, by expert, of one expert by row; -1: a row of zeros
  std::vector<std::int32_t> place;   ///< [rows · k] where in `order`; -1: dropped
  std::vector<std::uint64_t> counts; ///< [experts] entries of `order`
};

/// A stable sort by expert. `kept` [rows · k]; empty: all are.
inline Assignments assign(std::span<const std::int32_t> chosen, std::size_t experts, const std::vector<char>& kept, std::size_t grain) {
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

/// Devices that sort slots themselves, where nobody is dropped (nn/cuda/expert_order.hpp): then exists is true, and
/// `std::vector<std::uint64_t> sort(device, slots, experts, grain, chosen, order, room, place)` does what `assign` does, all on the device
/// but what it returns: slots of each expert, before they are filled. order has room for slots + experts (grain - 1) entries.
template <class Exec>
struct DeviceOrder {
  static constexpr bool exists = false;
};

/// A slot among those that compete for an expert; doubles, so that ranks can send it.
struct Candidate {
  double group, expert, row, weight;
};

/// Which of `all` their experts take, `capacity` in each group: the answer for the `count` candidates from `first` on.
inline std::vector<char> within_capacity(const std::vector<Candidate>& all, std::size_t capacity, nn::Drop drop, std::size_t first, std::size_t count) {
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

}  // namespace detail

}  // namespace weft
