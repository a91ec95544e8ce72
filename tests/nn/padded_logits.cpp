// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/padded_logits.hpp
// A vocabulary with padded rows of logits, as on GPUs: the loss equals that of logits without padding, and training is the same
// with the vocabulary sharded over tp, for any initial contents of the padding. golden/device_paths compares such a model's
// gradients with PyTorch's.
#include <weft/nn/padded_logits.hpp>

template <>
inline constexpr std::size_t weft::detail::logits_step<Kokkos::DefaultExecutionSpace> = 64;

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

constexpr std::size_t vocabulary = 101, length = 8, sequences = 3;
const models::GptConfig config{.vocabulary = vocabulary, .layers = 2, .width = 24, .heads = 6, .sequence = length};

Batch batch_of(std::size_t count) {
  Batch batch{.sequences = count, .length = length, .micro_batches = 1};
  for (std::size_t i = 0; i < count * length; ++i) {
    batch.tokens.push_back(int(i * 37 % vocabulary));
    batch.targets.push_back(i % 5 == 4 ? -1 : int((i * 53 + 100) % vocabulary));
  }
  return batch;
}

/// Fills the memory that the arena will hand out next.
void poison(DefaultDevice& device) {
  std::vector<weft::detail::Buffer> blocks;
  for (std::size_t bytes = 64; bytes <= (1 << 20); bytes *= 2)
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(device.allocate(bytes));
      std::fill_n(static_cast<double*>(blocks.back().get()), bytes / sizeof(double), std::numeric_limits<double>::quiet_NaN());
    }
}

std::vector<double> train(int ranks) {
  std::vector<double> losses;
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh<tp> mesh(world, {.tp = std::size_t(ranks)});
          TensorParallel<models::BasicGpt<double>> model(mesh, config);
          optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
          std::vector<double> mine;
          for (int step = 0; step < 3; ++step) {
            poison(world.device());
            mine.push_back(model.train_step(batch_of(sequences)));
            mine.push_back(optimizer.step().gradient_norm);
          }
          mine.push_back(model.evaluate(batch_of(sequences)));
          const std::lock_guard lock(mutex);
          losses = mine;
        }) == 0);
  return losses;
}

}  // namespace

// A space that is no host's has padding.
struct Elsewhere : Kokkos::DefaultExecutionSpace {};
template <>
inline constexpr bool weft::detail::on_host<Elsewhere> = false;
static_assert(weft::detail::logits_step<Elsewhere> == 64);

TEST_CASE("rows of logits begin at multiples of 64, whatever the vocabulary") {
  DefaultDevice device;
  using Matrix = Tensor<float, DefaultDevice::execution_space>;
  const Matrix x(device, {2, 8});
  for (const std::size_t rows : {1, 64, 65, 101}) {
    const auto logits = detail::padded_logits(x, Matrix(device, {rows, 8}));
    CHECK(logits.columns() == (rows + 63) / 64 * 64);
  }
}

TEST_CASE("the loss is that of the logits themselves") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> model(device, config);
  const Batch batch = batch_of(1);
  const std::vector<double> logits = model.logits(batch.tokens);
  REQUIRE(logits.size() == length * vocabulary);
  double sum = 0;
  int counted = 0;
  for (std::size_t row = 0; row < length; ++row) {
    if (batch.targets[row] < 0) continue;
    double total = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) total += std::exp(logits[row * vocabulary + i]);
    sum += std::log(total) - logits[row * vocabulary + std::size_t(batch.targets[row])];
    ++counted;
  }
  poison(device);
  CHECK(model.evaluate(batch) == doctest::Approx(sum / counted).epsilon(1e-12));
}

TEST_CASE("three steps over tp 2 and 3, which do not divide the vocabulary, are those of one rank") {
  const std::vector<double> alone = train(1);
  REQUIRE(alone.size() == 7);
  CHECK(alone.back() < alone.front());
  for (const int ranks : {2, 3}) {
    const std::vector<double> cut = train(ranks);
    INFO(ranks << " ranks");
    REQUIRE(cut.size() == alone.size());
    for (std::size_t i = 0; i < cut.size(); ++i) CHECK(cut[i] == doctest::Approx(alone[i]).epsilon(1e-12));
  }
}
