// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks that compute slower than others that do the same work, found in the times of each step: a function of these times
// alone, which is the same on every rank.
//
//   comm::Stragglers stragglers;
//   for (const comm::Straggler& slow : stragglers.add(seconds, groups)) slow.rank, slow.slower   // in this step found

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include <weft/core/inline.hpp>

namespace weft::comm {

struct Straggler {
  int rank = 0;
  /// Its time over the median of the other ranks of its group, less 1, in the newest steps: 0.2 is 20 % slower.
  double slower = 0;
  double seconds = 0;  ///< that it computes in a step
  int others = 0;      ///< ranks in its group besides it
};

/// Compares the time that each rank computes in a step with the median of the other ranks of its group, over the last `window`
/// steps. The mean of the ratios without the `cut` smallest and the `cut` largest does not depend on a few steps of any length. A
/// rank is slow if this mean is above `threshold` and above five times its standard error, taken from the ratios' median
/// deviation (that of the rank or of its group, whichever is larger). Steps shorter than `least_s` are taken together. The first
/// `warm_up` steps are not used.
class Stragglers {
 public:
  static constexpr std::size_t warm_up = 3, window = 16, cut = 6;
  static constexpr double threshold = 0.115;

  explicit Stragglers(double least_s = 0.1) : least_s_(least_s) {}

  /// The times of one step, of all ranks; `groups`: ranks with the same number do the same work. A step in which a rank has no
  /// time (0) is not used. Returns the ranks that have become slow.
  std::vector<Straggler> add(std::span<const float> seconds, std::span<const std::uint32_t> groups);

  /// The same from the words of all ranks, as ranks exchange them; nothing from no words.
  std::vector<Straggler> add(std::span<const std::uint64_t> words);
  static std::uint64_t word(double seconds, std::uint32_t group) {
    return std::uint64_t(std::bit_cast<std::uint32_t>(float(seconds))) << 32 | group;
  }

  /// The ranks that are slow now, by number.
  const std::vector<Straggler>& slow() const { return slow_; }

 private:
  void observe(std::span<const std::uint32_t> groups);

  double least_s_;
  std::size_t steps_ = 0, together_ = 0;  // steps seen, and those in sums_
  std::vector<double> sums_;
  std::deque<std::vector<float>> ratios_;  // logarithms, of the last observations
  std::vector<Straggler> slow_;
};

/// "rank 3 (host a7) computes 21 % slower than the median of the 7 other ranks of its stage, 12.1 ms a step: ...".
std::string describe(const Straggler& slow, const std::string& host);

/// Writes that line, of this rank on this machine, to standard error.
void report(const Straggler& slow);

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/stragglers_impl.hpp>
#endif
