// SPDX-License-Identifier: Apache-2.0
#pragma once
// The assignment of rows to experts, as tables on the host: the order in which rows are packed for their experts, and the rows
// that experts of limited capacity drop. A few integers per row, compiled once for all types.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft {

namespace nn {

/// The tokens that a full expert drops.
enum class Drop {
  none,            ///< none: experts accept any number of tokens
  by_probability,  ///< the tokens with the lowest weight; among equal weights the later ones
  by_position,     ///< the later tokens
};

/// The tokens over which an expert's capacity and the balance of the auxiliary loss are counted.
enum class Level {
  sequence,     ///< each sequence separately: the same result in every layout, for any number of micro-batches
  micro_batch,  ///< a data-parallel rank's micro-batch, over tp and cp: depends on dp and on the number of micro-batches
  data,         ///< a micro-batch over all data-parallel ranks; capacity is still counted as for micro_batch
};

}  // namespace nn

namespace detail {

/// The number of a group's tokens that an expert accepts: ceil(tokens · k / experts · factor).
inline std::size_t expert_capacity(std::size_t tokens, std::size_t k, std::size_t experts, double factor) {
  // The last term makes 5 plus a rounding error 5 tokens, not 6.
  return static_cast<std::size_t>(std::ceil(double(tokens) * double(k) / double(experts) * factor - 1e-9));
}

/// The rows of an expert are padded with zeros to a multiple of this number. Otherwise a library that compiles a kernel per shape
/// would compile one for each number of rows, at the cost of several products.
template <class T>
inline constexpr std::size_t expert_grain = sizeof(T) < sizeof(double) ? 32 : 1;

inline std::uint64_t filled(std::uint64_t count, std::size_t grain) { return (count + grain - 1) / grain * grain; }

/// The destinations of the slots of rows. Slot row · k + j is the j-th expert of a row.
struct Assignments {
  std::vector<std::int32_t> order;    ///< slots sorted by expert, then by row; -1: a row of zeros
  std::vector<std::int32_t> place;    ///< [rows · k] index in `order`; -1: dropped
  std::vector<std::uint64_t> counts;  ///< [experts] entries in `order`

  /// The first entry in `order`, and the number, of the slots [first_slot, first_slot + slots) that go to an expert.
  std::pair<std::size_t, std::size_t> run_of(std::size_t expert, std::size_t first_slot, std::size_t slots) const;
};

/// A stable sort by expert. `kept` is [rows · k]; empty: all slots are kept.
Assignments assign(std::span<const std::int32_t> chosen, std::size_t experts, const std::vector<char>& kept, std::size_t grain);

/// Chooses k experts for each row of `chosen` [rows · k] without values: expert 0 has `skew` times the mean load, as far as there
/// are rows, and the others get the rest evenly.
void rehearse_choice(std::span<std::int32_t> chosen, std::size_t experts, std::size_t k, double skew);

/// Sorting of slots on a device, for routers that drop nothing (nn/cuda/expert_order.hpp). A specialisation sets `exists` to true
/// and has `std::vector<std::uint64_t> sort(device, slots, experts, grain, chosen, order, room, place)`. It does the work of
/// `assign` on the device and returns the slots of each expert without padding. `order` has memory for slots + experts (grain -
/// 1) entries.
template <class Exec>
struct DeviceOrder {
  static constexpr bool exists = false;
};

/// A slot that competes for an expert. Its members are doubles so that ranks can send it.
struct Candidate {
  double group, expert, row, weight;
};

/// Marks the candidates that their experts accept, `capacity` in each group; returns the marks of the `count` candidates from
/// `first` on.
std::vector<char> within_capacity(const std::vector<Candidate>& all, std::size_t capacity, nn::Drop drop, std::size_t first,
                                  std::size_t count);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/kernels/expert_assignments_impl.hpp>
#endif
