// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scaling of rotary positions: lower frequencies, with which a model trained on short sequences can process long ones.
//
//   models::LlamaConfig config{.attention = {.rope_scaling = {.type = RopeScaling::Type::linear, .factor = 4}}};

#include <cmath>
#include <cstddef>
#include <vector>

#include <weft/core/error.hpp>

namespace weft {

/// The scaling of each pair's frequency. `linear` (Chen et al., arXiv:2306.15595) divides all of them by `factor`. `llama3`
/// (Llama 3.1, arXiv:2407.21783) divides those with a wavelength above original_sequence / low_frequency, keeps those below
/// original_sequence / high_frequency, and interpolates between the two. `yarn` (Peng et al., arXiv:2309.00071) does the same,
/// but interpolates linearly in the index of the pair, between the two pairs with these wavelengths. `dynamic` increases the base
/// for sequences above original_sequence. `longrope` (Ding et al., arXiv:2402.13753) divides each by a separate factor, with one
/// set for sequences up to original_sequence and one for longer ones. yarn and longrope also multiply the rotated values by
/// attention_factor.
struct RopeScaling {
  enum class Type { none, linear, llama3, yarn, dynamic, longrope };
  Type type = Type::none;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;  ///< waves in original_sequence (llama3; yarn: beta_slow and beta_fast)
  std::size_t original_sequence = 8192;          ///< longest sequence before scaling (all except linear)
  bool whole_pairs = true;                       ///< yarn's interpolation begins and ends at whole pairs
  double attention_factor = 0;                   ///< 0: the paper's function of `factor` (yarn, longrope)
  std::vector<double> short_factors = {}, long_factors = {};  ///< one per pair of a head (longrope)

  static constexpr std::size_t most_pairs = 128;  ///< per head, with longrope

  /// The factor of the rotated values.
  double magnitude() const {
    if (type != Type::yarn && type != Type::longrope) return 1;
    if (attention_factor != 0) return attention_factor;
    if (factor <= 1) return 1;
    return type == Type::yarn ? 0.1 * std::log(factor) + 1
                              : std::sqrt(1 + std::log(factor) / std::log(double(original_sequence)));
  }
  /// True if frequencies depend on the length of a sequence.
  bool follows_length() const { return type == Type::dynamic || type == Type::longrope; }
  /// Throws LayoutError for numbers that are no valid scaling for a head of this width (0: unknown).
  void check(std::size_t head_width = 0) const {
    if (type == Type::none) return;
    if (!(factor > 0) || !std::isfinite(factor))
      throw_error<LayoutError>({"rotary positions: the factor of their scaling must be a finite number above 0"});
    if (!(attention_factor >= 0) || !std::isfinite(attention_factor))
      throw_error<LayoutError>({"rotary positions: the attention factor of their scaling must be a finite number of at least 0"});
    const bool waves = type == Type::llama3 || type == Type::yarn;
    if (waves &&
        (original_sequence == 0 || !(low_frequency > 0) || !(high_frequency > low_frequency) || !std::isfinite(high_frequency)))
      throw_error<LayoutError>({"rotary positions: scaling ", type == Type::yarn ? "yarn" : "llama3",
                                " needs original_sequence >= 1 and 0 < low_frequency < high_frequency"});
    if (type == Type::dynamic && (original_sequence == 0 || head_width == 2))
      throw_error<LayoutError>({"rotary positions: scaling dynamic needs original_sequence >= 1 and a head width of 4 or more"});
    if (type != Type::longrope) return;
    if (original_sequence < 2) throw_error<LayoutError>({"rotary positions: scaling longrope needs original_sequence >= 2"});
    for (const std::vector<double>* factors : {&short_factors, &long_factors}) {
      if ((head_width != 0 && factors->size() != head_width / 2) || factors->size() > most_pairs)
        throw_error<LayoutError>({"rotary positions: scaling longrope has ", factors->size(), " factors, and a head of width ",
                                  head_width, " has ", head_width / 2, " pairs (", most_pairs, " at most)"});
      for (const double one : *factors)
        if (!(one > 0) || !std::isfinite(one))
          throw_error<LayoutError>({"rotary positions: a factor of scaling longrope must be a finite number above 0"});
    }
  }
  bool operator==(const RopeScaling&) const = default;
};

}  // namespace weft
