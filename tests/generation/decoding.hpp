// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decoding with a key-value cache against the whole forward of each sequence on one rank.

#include <cstdint>
#include <mutex>
#include <vector>

#include <weft/generation/generate.hpp>

#include "support/matrix.hpp"

namespace weft_test {

using Sequences = std::vector<std::vector<std::int32_t>>;

/// Prompts of several lengths, and the tokens that follow them one by one.
inline const Sequences decoded_prompts = {{3, 1, 4, 1, 5}, {9}, {2, 6, 5}}, decoded_tokens = {{3, 5, 8}, {9, 7, 9}, {3, 2, 3}};

/// The largest difference of `logits` [sequences, vocabulary] from the last row of each of `whole`.
template <class Model>
double difference_of(SingleDevice<Model>& one, const std::vector<double>& logits, const Sequences& whole,
                     const Sequences& given) {
  double largest = 0;
  const std::size_t vocabulary = one.vocabulary();
  if (logits.size() != whole.size() * vocabulary) return 1e300;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<double> expected(vocabulary);
    if (!given[i].empty()) {
      const auto all = one.logits(whole[i]);
      expected.assign(all.end() - std::ptrdiff_t(vocabulary), all.end());
    }
    for (std::size_t j = 0; j < vocabulary; ++j) largest = std::max(largest, std::abs(logits[i * vocabulary + j] - expected[j]));
  }
  return largest;
}

/// Prompts, single tokens, several at once, a paused sequence, and removed tokens.
template <class Model, class Composition>
double largest_difference(SingleDevice<Model>& one, Composition& model) {
  KeyValueCache cache(decoded_prompts.size(), 12);
  Sequences whole(decoded_prompts.size());
  double largest = 0;
  const auto step = [&](const Sequences& given) {
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i].insert(whole[i].end(), given[i].begin(), given[i].end());
    largest = std::max(largest, difference_of(one, model.decode(cache, given), whole, given));
    for (std::size_t i = 0; i < whole.size(); ++i)
      if (cache.lengths()[i] != whole[i].size()) largest = 1e300;
  };
  step(decoded_prompts);
  for (std::size_t at = 0; at < decoded_tokens[0].size(); ++at)
    step({{decoded_tokens[0][at]}, {decoded_tokens[1][at]}, {decoded_tokens[2][at]}});
  step({{1, 2}, {}, {4}});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    cache.truncate(i, 2);
    whole[i].resize(2);
  }
  step({{7}, {8, 6, 4}, {}});
  cache.truncate(1, 0);  // starts again, while other sequences continue
  whole[1].clear();
  step({{5}, {2, 2}, {1}});
  return largest;
}

struct DecodedLayout {
  std::size_t world;
  Degrees degrees;
  const char* schedule = "1f1b";
};

/// Logits to `tolerance`, and the same tokens drawn on every rank of every layout.
template <class Composition, class Grid>
void check_decoding(typename Composition::Config config, const std::vector<DecodedLayout>& layouts, double tolerance) {
  config.sequence = 16;
  using Model = typename Composition::model_type;
  DefaultDevice device;
  SingleDevice<Model> one(device, config);
  CHECK(largest_difference(one, one) <= tolerance);
  const GenerateOptions options{.max_new_tokens = 7, .sampling = {.temperature = 1.3, .top_k = 30, .top_p = 0.95, .seed = 4}};
  const Sequences expected = generate(one, decoded_prompts, options);
  for (const DecodedLayout& layout : layouts) {
    INFO("world " << layout.world << ", tp(" << layout.degrees.tp << ") pp(" << layout.degrees.pp << ") ep(" << layout.degrees.ep
                  << "), " << layout.schedule);
    std::mutex mutex;
    double largest = 0;
    std::size_t same = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
            Grid mesh(world, layout.degrees);
            ModelOptions pipelined;
            pipelined.pipeline.schedule = schedule::choose(layout.schedule);
            Composition model(mesh, config, pipelined);
            DefaultDevice here;
            SingleDevice<Model> whole(here, config);
            const double mine = largest_difference(whole, model);
            const Sequences tokens = generate(model, decoded_prompts, options);
            std::lock_guard lock(mutex);
            largest = std::max(largest, mine);
            same += tokens == expected;
          }) == 0);
    CHECK(largest <= tolerance);
    CHECK(same == layout.world);
  }
}

}  // namespace weft_test
