// SPDX-License-Identifier: Apache-2.0
#pragma once
// Log-probabilities of generated tokens against those of training steps over the same tokens, bit by bit.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/generation/generate.hpp>

#include "support/matrix.hpp"

namespace weft_test {

using Sequences = std::vector<std::vector<std::int32_t>>;
using Scores = std::vector<std::vector<double>>;

inline constexpr std::size_t trained_length = 16;
/// Eight prompts of different lengths.
inline const Sequences scored_prompts = {{3, 1, 4, 1, 5}, {9},          {2, 6, 5}, {7, 7, 7, 7, 7, 7, 7, 7, 2},
                                         {1, 2},          {8, 3, 8, 4}, {11},      {5, 0, 12, 6, 10, 2}};
inline constexpr std::size_t new_tokens = 6;

/// The log-probability that a training step gives each new token. Only this token's loss counts in the step, and `shares` of the
/// sequences are cut into two micro-batches.
template <class S, class Model>
Scores trained_scores(Model& model, const Sequences& made, std::size_t share, std::size_t shares) {
  const std::size_t all = scored_prompts.size(), here = all / shares;
  Scores scores(all);
  for (std::size_t i = 0; i < all; ++i)
    for (std::size_t at = 0; at < made[i].size(); ++at) {
      TokenBatch batch{.sequences = here, .length = trained_length, .micro_batches = 2, .first_sequence = share * here};
      for (std::size_t j = share * here; j < (share + 1) * here; ++j) {
        std::vector<std::int32_t> tokens = scored_prompts[j], targets(trained_length, -1);
        tokens.insert(tokens.end(), made[j].begin(), made[j].end());
        if (i == j) targets[scored_prompts[i].size() + at - 1] = made[i][at];
        tokens.resize(trained_length);
        batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
        batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
      }
      scores[i].push_back(double(weft::accumulate_t<S>(-model.train_step(batch))));  // rounded as log_probability is
      model.discard_gradients();
    }
  return scores;
}

/// How many of the numbers differ in a bit.
inline std::size_t bits_apart(const Scores& a, const Scores& b) {
  std::size_t count = a.size() == b.size() ? 0 : 1000;
  for (std::size_t i = 0; count < 1000 && i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return 1000;
    for (std::size_t j = 0; j < a[i].size(); ++j) count += std::memcmp(&a[i][j], &b[i][j], sizeof(double)) != 0;
  }
  return count;
}

/// The prompts in batches of `size`.
template <class Model>
Generated generated_in_batches(Model& model, std::size_t size) {
  Generated all;
  for (std::size_t first = 0; first < scored_prompts.size(); first += size) {
    const std::size_t count = std::min(size, scored_prompts.size() - first);
    const Generated some = generate(model, std::span(scored_prompts).subspan(first, count),
                                    {.max_new_tokens = new_tokens, .log_probabilities = true});
    all.insert(all.end(), some.begin(), some.end());
    all.log_probabilities.insert(all.log_probabilities.end(), some.log_probabilities.begin(), some.log_probabilities.end());
  }
  return all;
}

struct InvariantLayout {
  std::size_t world;
  Degrees degrees;
  int zero = 0;
};

/// On one rank: batches of 8, 3 and 1 against each other and against training. Returns how many numbers differ.
template <class Model>
std::size_t apart_on_one_rank(const typename Model::Config& config, bool batch_invariant) {
  DefaultDevice device;
  SingleDevice<Model> one(device, config, {.numerics = {.batch_invariant = batch_invariant}});
  const Generated together = generated_in_batches(one, 8);
  std::size_t apart = bits_apart(together.log_probabilities, trained_scores<typename Model::scalar>(one, together, 0, 1));
  for (const std::size_t size : {std::size_t(1), std::size_t(3)}) {
    const Generated some = generated_in_batches(one, size);
    CHECK((batch_invariant ? some == together : some.size() == together.size()));
    apart += bits_apart(some.log_probabilities, together.log_probabilities);
  }
  return apart;
}

/// Every layout generates and trains with the same bits; layouts without tp have those of one rank. Prompts are generated on
/// ranks that share sequences over tp and pp, where `generates` allows it; else their results are one rank's.
template <class Composition, class Grid>
void check_layouts(const typename Composition::Config& config, const std::vector<InvariantLayout>& layouts,
                   ModelOptions options = {}) {
  using Model = typename Composition::model_type;
  using S = typename Model::scalar;
  options.numerics.batch_invariant = true;
  DefaultDevice device;
  SingleDevice<Model> one(device, config, options);
  const Generated expected = generated_in_batches(one, 8);
  for (const InvariantLayout& layout : layouts) {
    INFO("world " << layout.world << ", tp(" << layout.degrees.tp << ") pp(" << layout.degrees.pp << ") cp(" << layout.degrees.cp
                  << ") ZeRO " << layout.zero);
    std::mutex mutex;
    std::size_t apart = 0, from_one = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
            Grid mesh(world, layout.degrees);
            ModelOptions mine = options;
            mine.shard.stage = layout.zero;
            Composition model(mesh, config, mine);
            const Generated made = layout.degrees.cp > 1 ? expected : generated_in_batches(model, 3);
            const Scores trained = trained_scores<S>(model, made, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})));
            std::lock_guard lock(mutex);
            apart += bits_apart(trained, made.log_probabilities);
            from_one += bits_apart(trained, expected.log_probabilities);
          }) == 0);
    CHECK(apart == 0);
    if (layout.degrees.tp == 1) CHECK(from_one == 0);
  }
}

}  // namespace weft_test
