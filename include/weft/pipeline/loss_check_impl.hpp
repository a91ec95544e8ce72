// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/loss_check.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include <weft/core/inline.hpp>
#include <weft/pipeline/loss_check.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void refuse_sum(const char* of, bool tokens, std::size_t count, double once, double twice) {
  const char* what = tokens ? "tokens" : "samples";
  throw_error<UsageError>(
      {"the loss of this ", of, " is not a sum over ", what, ": that of ", count, " ", what, " is ", std::to_string(once),
       ", that of the same ", what, " twice ", std::to_string(twice), ". Leave out the division by a count: weft divides by the ",
       tokens ? "targets of the global batch that count" : "samples of the global batch, or by the model's count",
       ", and x.rows() counts one rank's rows of one micro-batch. Where samples are compared with each other, write `static "
       "constexpr bool loss_is_a_sum = true;` beside the loss"});
}

// Replaces each word by its maximum over all ranks that compute this loss.
WEFT_INLINE void take_greatest(const AxesInForce& axes, std::span<std::uint64_t> words) {
  axes.for_each([&](const AxesInForce::One& axis) {
    if (axis.id != pp::id && axis.ranks.size() > 1) axis.ranks.all_reduce(words, Reduction::max);
  });
}

WEFT_INLINE std::size_t smallest_on_any_rank(const AxesInForce& axes, std::size_t number) {
  std::uint64_t word = ~std::uint64_t(number);
  take_greatest(axes, std::span(&word, 1));
  return std::size_t(~word);
}

WEFT_COLD WEFT_INLINE bool check_some_samples(const AxesInForce& axes, const CheckedSamples& of, double tolerance,
                                              const LossOfSamples& loss, const RefuseSum& refuse) {
  std::uint64_t words[] = {~std::uint64_t(of.samples), of.none};
  take_greatest(axes, words);
  if (words[1] != 0) return true;
  const std::size_t all = std::size_t(~words[0]);  // the smallest number on any rank
  const std::size_t unit = std::min(of.unit, all);
  for (std::size_t first = 0, count = 0; unit != 0 && first + unit <= all; first += count) {
    count = std::min(std::max(unit, first), all - first) / unit * unit;
    const double once = loss(first, count, 1);
    std::uint64_t found = (std::isfinite(once) && once != 0) || of.rehearsed;
    take_greatest(axes, std::span(&found, 1));
    if (found == 0) continue;
    const double twice = loss(first, count, 2);
    const bool differs = std::abs(twice - 2 * once) > tolerance * (std::abs(once) + std::abs(twice));
    const auto bits = [&](double value) { return differs ? std::bit_cast<std::uint64_t>(std::abs(value)) : 0; };
    std::uint64_t seen[] = {differs, bits(once), bits(twice)};  // for ranks that do not find the difference themselves
    take_greatest(axes, seen);
    if (differs) refuse(count, once, twice);
    if (seen[0] != 0) refuse(count, std::bit_cast<double>(seen[1]), std::bit_cast<double>(seen[2]));
    return true;
  }
  return false;
}

}  // namespace weft::detail
