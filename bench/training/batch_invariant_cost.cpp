// SPDX-License-Identifier: Apache-2.0
// The cost of a batch-invariant run compared with a plain one on one rank: training steps of the same GPT in turn, and the
// generation of 8 texts, in processor time, which other programs hardly disturb. Prints JSON.
//
//   bench_training_batch_invariant_cost [rounds]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <weft/generation/generate.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class F>
double processor_ms(const F& f) {
  const std::clock_t started = std::clock();
  f();
  return 1e3 * double(std::clock() - started) / CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1));
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const models::GptConfig config{.layers = 6, .width = 384, .heads = 6, .sequence = 256};
  Batch batch{.sequences = 4, .length = config.sequence};
  std::vector<std::vector<std::int32_t>> prompts(8);
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    batch.tokens.push_back(std::int32_t(i * 2654435761u >> 9) & 255);
    batch.targets.push_back(std::int32_t((i + 1) * 2654435761u >> 9) & 255);
    if (i < 8 * 32) prompts[i / 32].push_back(batch.tokens[i]);
  }
  DefaultDevice devices[2];  // the option holds for a device
  SingleDevice<models::Gpt> models[2] = {SingleDevice<models::Gpt>(devices[0], config),
                                         SingleDevice<models::Gpt>(devices[1], config, {.numerics = {.batch_invariant = true}})};
  optim::AdamW optimizers[2] = {optim::AdamW(models[0], {.clip = 1.0}), optim::AdamW(models[1], {.clip = 1.0})};
  std::vector<double> step_ms[2], text_ms[2], step_ratio, text_ratio;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    double step[2], text[2];
    for (const int turn : {0, 1}) {
      const int which = (round + turn) & 1;  // the order alternates, so that a drifting clock favours neither
      step[which] = processor_ms([&] {
        models[which].train_step(batch);
        optimizers[which].step();
      });
      text[which] = processor_ms([&] { generate(models[which], prompts, {.max_new_tokens = 64, .log_probabilities = true}); });
    }
    if (round < 0) continue;
    for (const int which : {0, 1}) step_ms[which].push_back(step[which]), text_ms[which].push_back(text[which]);
    step_ratio.push_back(step[1] / step[0]);
    text_ratio.push_back(text[1] / text[0]);
  }
  std::printf(
      "{\"step_plain_ms\": %.1f, \"step_invariant_ms\": %.1f, \"step_ratio\": %.3f, \"texts_plain_ms\": %.1f, "
      "\"texts_invariant_ms\": %.1f, \"texts_ratio\": %.3f, \"rounds\": %d}\n",
      median(step_ms[0]), median(step_ms[1]), median(step_ratio), median(text_ms[0]), median(text_ms[1]), median(text_ratio),
      rounds);
}
