// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scaling of rotary positions: lower frequencies, with which a model that was trained on short sequences reads long ones.
//
//   models::LlamaConfig config{.attention = {.rope_scaling = {.type = RopeScaling::Type::linear, .factor = 4}}};

#include <cmath>
#include <cstddef>

#include <weft/core/error.hpp>

namespace weft {

/// How the frequency of each pair of values becomes another one. `linear` (Chen et al., arXiv:2306.15595) divides all of them by
/// `factor`. `llama3` (Llama 3.1, arXiv:2407.21783) divides those whose wavelength is above original_sequence / low_frequency,
/// leaves those below original_sequence / high_frequency, and between the two goes from one to the other.
struct RopeScaling {
  enum class Type { none, linear, llama3 };
  Type type = Type::none;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;  ///< waves in original_sequence (llama3)
  std::size_t original_sequence = 8192;          ///< longest sequence before the scaling (llama3)

  /// Throws LayoutError for numbers that give no frequencies.
  void check() const {
    if (type == Type::none) return;
    if (!(factor > 0) || !std::isfinite(factor))
      throw_error<LayoutError>({"rotary positions: the factor of their scaling must be a finite number above 0"});
    if (type == Type::llama3 &&
        (original_sequence == 0 || !(low_frequency > 0) || !(high_frequency > low_frequency) || !std::isfinite(high_frequency)))
      throw_error<LayoutError>(
          {"rotary positions: scaling llama3 needs original_sequence >= 1 and "
           "0 < low_frequency < high_frequency"});
  }
  bool operator==(const RopeScaling&) const = default;
};

}  // namespace weft
