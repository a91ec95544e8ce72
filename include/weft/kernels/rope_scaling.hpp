// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scaling of rotary positions: lower frequencies, with which a model that was trained on short sequences reads long ones.
//
//   models::LlamaConfig config{.attention = {.rope_scaling = {.type = RopeScaling::Type::linear, .factor = 4}}};

#include <cmath>
#include <cstddef>
#include <vector>

#include <weft/core/error.hpp>

namespace weft {

/// How the frequency of each pair of values becomes another one. `linear` (Chen et al., arXiv:2306.15595) divides all of them by
/// `factor`. `llama3` (Llama 3.1, arXiv:2407.21783) divides those whose wavelength is above original_sequence / low_frequency,
/// leaves those below original_sequence / high_frequency, and between the two goes from one to the other. `yarn` (Peng et al.,
/// arXiv:2309.00071) does the same along the pairs, in a straight line between the two that have these wavelengths. `dynamic`
/// raises the base in sequences above original_sequence. `longrope` (Ding et al., arXiv:2402.13753) divides each by a factor of
/// its own, one set for sequences up to original_sequence and one for longer ones. yarn and longrope also multiply the rotated
/// values by attention_factor.
struct RopeScaling {
  enum class Type { none, linear, llama3, yarn, dynamic, longrope };
  Type type = Type::none;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;  ///< waves in original_sequence (llama3; yarn: beta_slow and beta_fast)
  std::size_t original_sequence = 8192;          ///< longest sequence before the scaling (all but linear)
  bool whole_pairs = true;                       ///< yarn's line begins and ends at whole pairs
  double attention_factor = 0;                   ///< 0: the paper's, a function of `factor` (yarn, longrope)
  std::vector<double> short_factors = {}, long_factors = {};  ///< one for each pair of a head (longrope)

  static constexpr std::size_t most_pairs = 128;  ///< of a head, with longrope

  /// The number by which rotated values are multiplied.
  double magnitude() const {
    if (type != Type::yarn && type != Type::longrope) return 1;
    if (attention_factor != 0) return attention_factor;
    if (factor <= 1) return 1;
    return type == Type::yarn ? 0.1 * std::log(factor) + 1
                              : std::sqrt(1 + std::log(factor) / std::log(double(original_sequence)));
  }
  /// Whether frequencies depend on the length of a sequence.
  bool follows_length() const { return type == Type::dynamic || type == Type::longrope; }
  /// Throws LayoutError for numbers that give no frequencies of a head of this width (0: of no width that is known).
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
