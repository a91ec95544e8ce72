// SPDX-License-Identifier: Apache-2.0
// The memory of ranks, by the arena's counters, follows the formulas of ZeRO. Counted: every byte of parameters, gradients and
// optimizer state (AdamW: two moments, and the master copy for bfloat16) in use between two steps. Within a step, in addition to
// the activations that DataParallel needs too, there are at most two units' parameters and two units' whole gradients at a time,
// and those of the front, which its tied table keeps open. The whole model never exists, not even while it is made.

#include "support/parity.hpp"

using namespace weft_test;

namespace {

const models::GptConfig config{.vocabulary = 256, .layers = 6, .width = 128, .heads = 4, .sequence = 32};

struct Bytes {
  std::size_t made = 0;             // peak while the model is made
  std::size_t kept = 0;             // between steps
  std::size_t step = 0;             // peak of a step, less kept
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
    for (int i = 0; i < 3; ++i) {  // the first step only records the order of units
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

// Bytes of an element: of a parameter and of its master copy, and of a gradient that a rank keeps in stages 1 and 2. Layers add
// gradients in 4 bytes, and a moment has 4.
struct Sizes {
  double value, master, gradient;
};

template <class Model>
void check_memory(const Sizes& size) {
  const double P = double(parameters()), optimizer = 8 + size.master;
  for (const int ranks : {2, 4})
    for (const std::size_t micro_batches : {1, 2}) {
      const double N = ranks;
      const Bytes plain = measure<DataParallel<Model>>(ranks, micro_batches);
      const Bytes one = measure<FullyShardedDataParallel<Model, zero::Stage1>>(ranks, micro_batches);
      const Bytes two = measure<FullyShardedDataParallel<Model, zero::Stage2>>(ranks, micro_batches);
      const Bytes three = measure<FullyShardedDataParallel<Model, zero::Stage3>>(ranks, micro_batches);
      const double unit = double(plain.unit), front = double(plain.front), activations = double(plain.step);
      INFO("ranks " << ranks << ", micro-batches " << micro_batches << ", parameters " << P << "; kept bytes: plain "
                    << plain.kept << ", stage 1 " << one.kept << ", 2 " << two.kept << ", 3 " << three.kept
                    << "; more in a step: plain " << plain.step << ", stage 1 " << one.step << ", 2 " << two.step << ", 3 "
                    << three.step << "; made " << three.made);
      CHECK(within(double(plain.kept), (size.value + 4 + optimizer) * P));
      CHECK(within(double(one.kept), (size.value + size.gradient) * P + optimizer * P / N));
      CHECK(within(double(two.kept), size.value * P + (size.gradient + optimizer) * P / N));
      CHECK(within(double(three.kept), 16 * P / N));
      CHECK(double(one.step) <= 1.05 * (activations + 4 * (unit / N + (size.gradient == 4 ? 0 : 2 * unit + front))));
      CHECK(double(two.step) <= 1.05 * (activations + 4 * (2 * unit + front + unit / N)));
      CHECK(double(three.step) <= 1.05 * (activations + size.value * (2 * unit + front) + 4 * (2 * unit + front + unit / N)));
      CHECK(within(double(three.made), 8 * P / N));
    }
}

// The peak bytes of a rank in a whole step, including the update, of a model that consists almost only of parameters.
template <class Composition>
double peak_of(int ranks, const ModelOptions& options = {}) {
  const models::GptConfig deep{
      .vocabulary = 32, .layers = 144, .width = 64, .heads = 4, .sequence = 8, .recompute = Recomputation::full};
  std::size_t peak = 0;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    Composition model(mesh, deep, options);
    optim::AdamW optimizer(model, {.clip = 1});
    Batch batch{.sequences = 2, .length = 8, .micro_batches = 2};
    batch.first_sequence = 2 * std::size_t(world.rank());
    for (int i = 0; i < 16; ++i) {
      batch.tokens.push_back(i * 7 % 32);
      batch.targets.push_back(i * 11 % 32);
    }
    for (int i = 0; i < 2; ++i) {
      world.device().arena().reset_peak();
      model.train_step(batch);
      optimizer.step();
    }
    std::lock_guard lock(mutex);
    peak = std::max(peak, world.device().arena().use().peak);
  });
  CHECK(code == 0);
  return double(peak) / (144.0 * (12 * 64 * 64 + 13 * 64) + (32 + 8 + 2) * 64);
}

template <class Model>
void check_peaks(double one_kept, double one_cut, double two_kept, double two_cut) {
  for (const double N : {2, 4}) {
    const double one = peak_of<FullyShardedDataParallel<Model, zero::Stage1>>(int(N)) / (one_kept + one_cut / N);
    const double two = peak_of<FullyShardedDataParallel<Model, zero::Stage2>>(int(N)) / (two_kept + two_cut / N);
    const double three = peak_of<FullyShardedDataParallel<Model, zero::Stage3>>(int(N)) / (16 / N);
    MESSAGE("peaks with " << N << " ranks, of the formulas: stage 1 " << one << ", 2 " << two << ", 3 " << three);
    for (const double ratio : {one, two, three}) CHECK(ratio == doctest::Approx(1).epsilon(0.05));
  }
}

}  // namespace

TEST_CASE("memory in float: 8P+8P/N, 4P+12P/N, 16P/N") {
  check_memory<models::BasicGpt<float>>({.value = 4, .master = 0, .gradient = 4});
}
TEST_CASE("memory in bfloat16: 4P+12P/N, 2P+14P/N, 16P/N") {
  check_memory<models::BasicGpt<bfloat16>>({.value = 2, .master = 4, .gradient = 2});
}
TEST_CASE("the peak of a step is within 5 % of the formulas where parameters dominate") {
  check_peaks<models::BasicGpt<float>>(8, 8, 4, 12);
  check_peaks<models::BasicGpt<bfloat16>>(4, 12, 2, 14);
}
TEST_CASE("gradients kept in float: 6P+12P/N, 2P+16P/N") {
  using Half = models::BasicGpt<bfloat16>;
  CHECK(peak_of<FullyShardedDataParallel<Half, zero::Stage1, MixedPrecision<bfloat16, float, float>>>(2) ==
        doctest::Approx(12).epsilon(0.05));
  CHECK(peak_of<FullyShardedDataParallel<Half, zero::Stage2>>(2, {.numerics = {.gradient = DataType::float32}}) ==
        doctest::Approx(10).epsilon(0.05));
}
