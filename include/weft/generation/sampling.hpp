// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of the next token from its logits: greedy, or drawn at a temperature from the most probable tokens (top-k and top-p,
// as in Holtzman et al., arXiv:1904.09751).
//
//   const std::int32_t token = sample_token(logits, {.temperature = 0.8, .top_p = 0.9, .seed = 1}, sequence, position);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>

namespace weft {

/// The options of the choice. The temperature divides the logits; then top_k and then top_p exclude tokens.
struct Sampling {
  double temperature = 0;  ///< 0: the most probable token (greedy)
  std::size_t top_k = 0;   ///< only the k most probable tokens; 0: all
  double top_p = 1;        ///< only the most probable tokens, until their probabilities sum to p
  std::uint64_t seed = 1;

  /// Throws UsageError for numbers out of range.
  WEFT_COLD void check() const {
    if (!std::isfinite(temperature) || temperature < 0)
      throw_error<UsageError>({"temperature ", std::to_string(temperature), ": 0 for the most probable token, or above 0"});
    if (!(top_p > 0) || top_p > 1) throw_error<UsageError>({"top_p ", std::to_string(top_p), ": above 0 and at most 1"});
  }
};

namespace detail {

/// Uniform in [0, 1), 53 bits. Depends only on seed, sequence and position, so every rank draws the same number, in a batch and
/// without one.
inline double uniform_of_token(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
  const Philox::Words words = Philox::draw(key_of(seed, site_of("generate"), sequence), position);
  return double((std::uint64_t(words.word[0]) << 21) ^ (words.word[1] >> 11)) * 0x1p-53;
}

/// A token and its unnormalised probability.
struct TokenWeight {
  std::int32_t token;
  double weight;
};

/// The tokens that top_k and top_p keep: most probable first, among equals the lower number first; in vocabulary order if both
/// are off. Weights are exp((logit - largest) / temperature). top_p applies to the tokens that top_k keeps, and always keeps the
/// first.
WEFT_COLD inline std::vector<TokenWeight> candidates_of(std::span<const double> logits, const Sampling& sampling) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<TokenWeight> all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) all[i] = {std::int32_t(i), std::exp((logits[i] - top) / sampling.temperature)};
  // Weights of improbable tokens are all 0, so the logits determine the order.
  const auto before = [&](const TokenWeight& a, const TokenWeight& b) {
    const double x = logits[std::size_t(a.token)], y = logits[std::size_t(b.token)];
    return x != y ? x > y : a.token < b.token;
  };
  const bool some = sampling.top_k != 0 && sampling.top_k < all.size();
  if (some) {
    std::partial_sort(all.begin(), all.begin() + std::ptrdiff_t(sampling.top_k), all.end(), before);
    all.resize(sampling.top_k);
  }
  if (sampling.top_p >= 1) return all;
  const auto add = [](double sum, const TokenWeight& one) { return sum + one.weight; };
  const double enough = sampling.top_p * std::accumulate(all.begin(), all.end(), 0.0, add);
  // A heap yields the most probable tokens without sorting the whole vocabulary.
  const auto behind = [&](const TokenWeight& a, const TokenWeight& b) { return before(b, a); };
  if (!some) std::make_heap(all.begin(), all.end(), behind);
  std::vector<TokenWeight> kept;
  double sum = 0;
  for (std::size_t i = 0; i < all.size() && sum < enough; ++i) {
    if (some) {
      kept.push_back(all[i]);
    } else {
      std::pop_heap(all.begin(), all.end() - std::ptrdiff_t(i), behind);
      kept.push_back(all[all.size() - 1 - i]);
    }
    sum += kept.back().weight;
  }
  return kept;
}

}  // namespace detail

/// A token for these logits, [vocabulary]: the first of the largest if the temperature is 0, otherwise drawn with Philox at
/// (seed, sequence, position). Throws UsageError if a logit is not a number.
inline std::int32_t sample_token(std::span<const double> logits, const Sampling& sampling, std::uint64_t sequence,
                                 std::uint64_t position) {
  for (const double logit : logits)
    if (std::isnan(logit) || logit == std::numeric_limits<double>::infinity())
      throw_error<UsageError>({"no token after position ", position, " of sequence ", sequence,
                               ": the model's logits are not finite; its weights are damaged, or float16 overflows"});
  if (sampling.temperature == 0) return std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<detail::TokenWeight> candidates = detail::candidates_of(logits, sampling);
  double sum = 0;
  for (const detail::TokenWeight& one : candidates) sum += one.weight;
  double at = sum * detail::uniform_of_token(sampling.seed, sequence, position);
  for (const detail::TokenWeight& one : candidates) {
    at -= one.weight;
    if (at < 0) return one.token;
  }
  return std::find_if(candidates.rbegin(), candidates.rend(), [](const auto& one) { return one.weight > 0; })->token;
}

}  // namespace weft
