// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two training steps with and without pieces of the sums over tp (TensorOptions::piece_bytes), compared as bits on every rank.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "support/counted_group.hpp"
#include "support/parity.hpp"

namespace weft_test {

/// A batch of long sequences, so that a rank has enough rows for several pieces.
inline Batch long_batch(int step, std::size_t data_rank, std::size_t sequences, std::size_t length, std::size_t micro_batches) {
  Batch batch;
  batch.sequences = sequences;
  batch.length = length;
  batch.micro_batches = micro_batches;
  batch.first_sequence = data_rank * sequences;
  for (std::size_t i = 0; i < sequences * length; ++i) {
    batch.tokens.push_back(std::int32_t((i * 7 + i / 13 + 5 * std::size_t(step) + 11 * data_rank) % batch_vocabulary));
    batch.targets.push_back(std::int32_t((i * 5 + 3 + data_rank) % batch_vocabulary));
  }
  return batch;
}

/// All bits of two steps of this rank, and the messages over tp.
struct PieceBits {
  std::vector<double> numbers;
  std::uint64_t messages = 0;
};

template <class Composition>
PieceBits piece_bits(World& world, const Degrees& degrees, const typename Composition::Config& config, ModelOptions options,
                     std::size_t piece_bytes, std::size_t length) {
  Rehearsal counts;
  World counting(counted(world.communicator(), counts), world.device());
  const Mesh<dp, tp, pp> mesh(counting, degrees);
  options.tensor.piece_bytes = piece_bytes;
  Composition model(mesh, config, options);
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  const auto messages = [&] {
    std::uint64_t calls = 0;
    for (const auto& of : counts.messages)
      if (of.axis == "tp") calls += of.calls;
    return calls;
  };
  PieceBits bits;
  const std::uint64_t before = messages();
  for (int step = 0; step < 2; ++step) {
    const Batch batch = long_batch(step, std::size_t(mesh.comm(dp{}).rank()), 4, length, 2);
    bits.numbers.push_back(model.train_step(batch));
    model.for_each_state([&](ParameterState& state) {
      if (!state.trainable()) return;  // no gradient is there
      for_each_gradient(state, [&](std::size_t, double value) { bits.numbers.push_back(value); });
    });
    bits.numbers.push_back(optimizer.step().gradient_norm);
    bits.numbers.push_back(model.evaluate(batch));
  }
  bits.messages = messages() - before;
  return bits;
}

/// Compares pieces with whole sums on every rank of this process. `tolerance` is relative to the largest number; 0: the same
/// bits. Rows of a micro-batch: 2 * length. `more`: messages that each rank adds, the pieces of every sum less one; 0: as the
/// ranks' stages have it.
template <class Composition, class Backend = comm::Threads>
void check_pieces(int ranks, const Degrees& degrees, typename Composition::Config config, double tolerance,
                  const ModelOptions& options = {}, std::size_t length = 100, std::uint64_t more = 0) {
  config.sequence = 128;
  config.layers = 2;
  config.dropout = 0;  // a dropout between a product and its sum needs the whole product
  std::mutex mutex;
  std::size_t compared = 0, ranks_here = 0, ranks_with_more = 0;
  double worst = 0;  // INFINITY if numbers are not finite
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    const PieceBits whole = piece_bits<Composition>(world, degrees, config, options, 0, length),
                    pieces = piece_bits<Composition>(world, degrees, config, options, 1024, length);
    const std::lock_guard lock(mutex);
    ++ranks_here;
    ranks_with_more += more == 0 ? pieces.messages > whole.messages + 8 : pieces.messages == whole.messages + more;
    REQUIRE(whole.numbers.size() == pieces.numbers.size());
    compared += whole.numbers.size();
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < whole.numbers.size(); ++i) {
      if (!std::isfinite(pieces.numbers[i])) worst = INFINITY;
      if (std::memcmp(&whole.numbers[i], &pieces.numbers[i], sizeof(double)) == 0) continue;
      difference = std::max(difference, std::abs(whole.numbers[i] - pieces.numbers[i]));
      largest = std::max(largest, std::abs(whole.numbers[i]));
    }
    if (difference > 0) worst = std::max(worst, difference / largest);
  });
  CHECK(code == 0);
  CHECK(compared > 400);
  CHECK(worst <= tolerance);
  CHECK(ranks_with_more == ranks_here);
}

template <class Model>
using Tensors = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
template <class Model>
using Sequences = FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>>;

}  // namespace weft_test
