// SPDX-License-Identifier: Apache-2.0
// What ranks keep, as the arena counts it, follows the formulas of ZeRO. Counted: every byte of parameters, gradients and
// optimizer state (AdamW: two moments, and the master copy for bfloat16) that is in use between two steps. In the step itself,
// beside the activations that DataParallel needs too, at most two units' parameters and two units' whole gradients come
// and go, and those of the front, which its tied table keeps open. The whole model never exists, not while it is made either.

#include "support/parity.hpp"

using namespace weft_test;

namespace {

const nn::GptConfig config{.vocabulary = 256, .layers = 6, .width = 128, .heads = 4, .sequence = 32};

struct Bytes {
  std::size_t made = 0;        // peak while the model is made
  std::size_t kept = 0;        // between steps
  std::size_t step = 0;        // peak of a step, less kept
  std::size_t unit = 0, front = 0;  // elements of the largest unit and of the front
};

template <class Composition>
Bytes measure(int ranks, std::size_t micro_batches) {
  Bytes bytes;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Mesh<dp> mesh(world);
    const auto& use = world.device().arena().use();
    Composition model(mesh, config);
    const std::size_t made = use.peak;
    optim::AdamW optimizer(model);
    Batch batch{.sequences = 4, .length = 32, .micro_batches = micro_batches};
    batch.first_sequence = 4 * std::size_t(world.rank());
    for (std::size_t i = 0; i < 4 * 32; ++i) {
      batch.tokens.push_back(int(i * 7 % 256));
      batch.targets.push_back(int(i * 11 % 256));
    }
    std::size_t kept = 0, step = 0;
    for (int i = 0; i < 3; ++i) {  // the first step only learns the order of units
      world.device().arena().reset_peak();
      model.train_step(batch);
      kept = std::max(kept, use.current);
      step = use.peak;
      optimizer.step();
    }
    std::lock_guard lock(mutex);
    bytes.made = std::max(bytes.made, made);
    bytes.kept = std::max(bytes.kept, kept);
    bytes.step = std::max(bytes.step, step);
  });
  CHECK(code == 0);
  bytes.step -= bytes.kept;
  bytes.unit = 12 * 128 * 128 + 13 * 128;
  bytes.front = (256 + 32) * 128;
  return bytes;
}

std::size_t parameters() { return (256 + 32) * 128 + 6 * (12 * 128 * 128 + 13 * 128) + 2 * 128; }

bool within(double bytes, double formula) { return std::abs(bytes - formula) <= 0.05 * formula; }

// value: bytes of a parameter; master: of its copy in the optimizer. A gradient and a moment have 4.
template <class Model>
void check_memory(double value, double master) {
  const double P = double(parameters()), optimizer = 8 + master;
  for (const int ranks : {2, 4})
    for (const std::size_t micro_batches : {1, 2}) {
      const double N = ranks;
      const Bytes plain = measure<DataParallel<Model>>(ranks, micro_batches);
      const Bytes one = measure<FullyShardedDataParallel<Model, zero::Stage1>>(ranks, micro_batches);
      const Bytes two = measure<FullyShardedDataParallel<Model, zero::Stage2>>(ranks, micro_batches);
      const Bytes three = measure<FullyShardedDataParallel<Model, zero::Stage3>>(ranks, micro_batches);
      const double unit = double(plain.unit), front = double(plain.front), activations = double(plain.step);
      INFO("ranks " << ranks << ", micro batches " << micro_batches << ", parameters " << P << "; kept bytes: plain " << plain.kept << ", stage 1 " << one.kept << ", 2 " << two.kept << ", 3 "
                    << three.kept << "; more in a step: plain " << plain.step << ", stage 1 " << one.step << ", 2 " << two.step << ", 3 " << three.step << "; made " << three.made);
      CHECK(within(double(plain.kept), (value + 4 + optimizer) * P));
      CHECK(within(double(one.kept), (value + 4) * P + optimizer * P / N));
      CHECK(within(double(two.kept), value * P + (4 + optimizer) * P / N));
      CHECK(within(double(three.kept), (value + 4 + optimizer) * P / N));
      CHECK(double(one.step) <= 1.05 * (activations + 4 * unit / N));
      CHECK(double(two.step) <= 1.05 * (activations + 4 * (2 * unit + front + unit / N)));
      CHECK(double(three.step) <= 1.05 * (activations + value * (2 * unit + front) + 4 * (2 * unit + front + unit / N)));
      CHECK(within(double(three.made), (value + 4) * P / N));
    }
}

}  // namespace

TEST_CASE("memory in float: 8P+8P/N, 4P+12P/N, 16P/N") { check_memory<nn::BasicGpt<float>>(4, 0); }
TEST_CASE("memory in bfloat16: 6P+12P/N, 2P+16P/N, 18P/N") { check_memory<nn::BasicGpt<bfloat16>>(2, 4); }
