// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/summed_product.hpp weft/tensor/sum_in_pieces.hpp weft/tensor/pending_rows.hpp
// Sums over tp that follow their products in pieces: the same bits in every layout, and hidden behind the products if each
// message takes a time of its own.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <weft/nn/lora.hpp>
#include <weft/nn/summed_product.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/sum_in_pieces.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"
#include "support/parity.hpp"

using namespace weft_test;

namespace {

/// A batch of long sequences, so that a rank has enough rows for several pieces.
Batch long_batch(int step, std::size_t data_rank, std::size_t sequences, std::size_t length, std::size_t micro_batches) {
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
struct Bits {
  std::vector<double> numbers;
  std::uint64_t messages = 0;
};

template <class Composition>
Bits bits_of(World& world, const Degrees& degrees, const typename Composition::Config& config, ModelOptions options,
             std::size_t piece_bytes, std::size_t length, std::shared_ptr<testing::SlowNetwork> network) {
  World counted(testing::delay_messages(world.communicator(), network), world.device());
  const Mesh<dp, tp, pp> mesh(counted, degrees);
  options.tensor.piece_bytes = piece_bytes;
  Composition model(mesh, config, options);
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  Bits bits;
  const std::uint64_t before = testing::delayed(mesh.comm(tp{})).messages;
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
  bits.messages = testing::delayed(mesh.comm(tp{})).messages - before;
  return bits;
}

/// Compares pieces with whole sums on every rank. `tolerance` is relative to the largest number; 0: the same bits. Rows of a
/// micro-batch: 2 * length.
template <class Composition>
void check_same(int ranks, const Degrees& degrees, typename Composition::Config config, double tolerance,
                const ModelOptions& options = {}, std::size_t length = 100) {
  config.sequence = 128;
  config.layers = 2;
  config.dropout = 0;  // a dropout between a product and its sum needs the whole product
  std::mutex mutex;
  const auto one = std::make_shared<testing::SlowNetwork>(), other = std::make_shared<testing::SlowNetwork>();
  std::size_t compared = 0, ranks_with_more = 0;
  double worst = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = ranks}, [&](World& world) {
    const Bits whole = bits_of<Composition>(world, degrees, config, options, 0, length, one),
               pieces = bits_of<Composition>(world, degrees, config, options, 1024, length, other);
    const std::lock_guard lock(mutex);
    ranks_with_more += pieces.messages > whole.messages + 8;
    REQUIRE(whole.numbers.size() == pieces.numbers.size());
    compared += whole.numbers.size();
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < whole.numbers.size(); ++i) {
      if (std::memcmp(&whole.numbers[i], &pieces.numbers[i], sizeof(double)) == 0) continue;
      difference = std::max(difference, std::abs(whole.numbers[i] - pieces.numbers[i]));
      largest = std::max(largest, std::abs(whole.numbers[i]));
    }
    if (difference > 0) worst = std::max(worst, difference / largest);
  });
  CHECK(code == 0);
  CHECK(compared > 400);
  CHECK(worst <= tolerance);
  CHECK(ranks_with_more == std::size_t(ranks));
}

template <class Model>
using Tensors = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
template <class Model>
using Sequences = FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>>;

}  // namespace

TEST_CASE("pieces of sums give the bits of whole sums") {
  SUBCASE("gpt, all-reduce") { check_same<Tensors<models::BasicGpt<double>>>(2, {.tp = 2}, gpt_config(), 0); }
  SUBCASE("gpt, reduce-scatter, zero bubble, shards of parameters") {
    check_same<Sequences<models::BasicGpt<double>>>(8, {.tp = 2, .pp = 2}, gpt_config(), 0,
                                                    {.pipeline = {.schedule = schedule::choose("zb-h1")}});
  }
  SUBCASE("llama, all-reduce, input gradients of several projections in one sum") {
    check_same<Tensors<models::BasicLlama<double>>>(4, {.tp = 4}, llama_config(), 0, {}, 128);
  }
  SUBCASE("llama, reduce-scatter, recomputation") {
    auto config = llama_config();
    config.recompute = Recomputation::full;
    check_same<Sequences<models::BasicLlama<double>>>(4, {.tp = 2}, config, 0);
  }
  SUBCASE("gpt with adapters, reduce-scatter, whose dropout needs the whole product of some layers") {
    check_same<Sequences<models::BasicGpt<double, Lora>>>(
        2, {.tp = 2}, gpt_config(), 0, {.lora = {.rank = 3, .dropout = 0.1, .match = {"*"}, .up_deviation = 0.1}});
  }
}
// oneDNN's product of a row in float depends on the number of rows, in its last bit.
TEST_CASE("pieces of sums in float differ by the rounding of products") {
  check_same<Tensors<models::BasicGpt<float>>>(2, {.tp = 2}, gpt_config(), 1e-5);
}

namespace {

using Exec = DefaultDevice::execution_space;

double seconds_since(double begin) { return testing::SlowNetwork::now() - begin; }

/// A term whose rows take `row_s` each to compute; row i is filled with i and the rank.
Tensor<float, Exec> slow_term(DefaultDevice& device, std::size_t rows, std::size_t columns, std::size_t pieces, double row_s,
                              int rank) {
  return Tensor<float, Exec>(
      device, {rows, columns},
      std::make_shared<detail::PendingRows>(
          pieces, rows, [&device, rows, columns] { return device.allocate(rows * columns * sizeof(float)); },
          [=](std::size_t first, std::size_t count, void* out) {
            std::this_thread::sleep_for(std::chrono::duration<double>(row_s * double(count)));
            for (std::size_t i = 0; i < count * columns; ++i)
              static_cast<float*>(out)[i] = float(first + i / columns) + 1000 * float(rank);
          }));
}

}  // namespace

TEST_CASE("delays of a sum's messages are hidden behind its product") {
  constexpr std::size_t rows = 160, columns = 16, pieces = 8;
  constexpr double product_s = 0.16, sum_s = 0.12;  // pieces of 20 ms and 15 ms
  double hidden[] = {0, 0}, in_transit[] = {0, 0};
  const auto shared = std::make_shared<testing::SlowNetwork>();
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const Communicator comm = testing::delay_messages(world.communicator(), shared);
    for (const int scatter : {0, 1}) {
      const auto once = [&](double delay_s) {
        const std::size_t bytes = rows * columns * sizeof(float) / (scatter ? 2 : 1);  // of a call's count: a rank's part
        world.communicator().barrier();
        if (world.rank() == 0) shared->set({.seconds_per_byte = delay_s / double(bytes)});
        world.communicator().barrier();
        const Tensor<float, Exec> term = slow_term(world.device(), rows, columns, pieces, product_s / rows, world.rank());
        const double begin = testing::SlowNetwork::now(), before = testing::delayed(comm).seconds;
        Tensor<float, Exec> y(world.device(), {scatter ? rows / 2 : rows, columns});
        if (scatter) detail::reduce_scatter_in_pieces(comm, term, y);
        else detail::all_reduce_in_pieces(comm, term, y);
        const double took = seconds_since(begin);
        for (std::size_t row = 0; row < y.rows(); ++row) {
          const std::size_t place = row + (scatter ? std::size_t(world.rank()) * rows / 2 : 0);
          if (y.data()[row * columns] != 2 * float(place) + 1000) FAIL("row ", row);
        }
        if (world.rank() == 0) in_transit[scatter] = testing::delayed(comm).seconds - before;
        return took;
      };
      double without = 1e9, with = 1e9;
      for (int round = 0; round < 5; ++round) {  // other processes only make a round slower
        without = std::min(without, once(0));
        with = std::min(with, once(sum_s));
      }
      if (world.rank() == 0) hidden[scatter] = 1 - (with - without) / sum_s;
    }
  });
  CHECK(code == 0);
  for (const int scatter : {0, 1}) {
    INFO((scatter ? "reduce-scatter" : "all-reduce"), ": hidden ", hidden[scatter]);
    CHECK(in_transit[scatter] == doctest::Approx(sum_s));
    CHECK(hidden[scatter] >= 0.8);
  }
}

TEST_CASE("a pending tensor is computed when its elements are needed, once") {
  DefaultDevice device;
  int calls = 0;
  std::size_t computed = 0;
  const auto make = [&] {
    return Tensor<float, Exec>(device, {10, 2},
                               std::make_shared<detail::PendingRows>(
                                   3, 10, [&] { return device.allocate(20 * sizeof(float)); },
                                   [&](std::size_t first, std::size_t count, void* out) {
                                     ++calls;
                                     computed += count;
                                     for (std::size_t i = 0; i < 2 * count; ++i)
                                       static_cast<float*>(out)[i] = float(2 * first + i);
                                   }));
  };
  const Tensor<float, Exec> x = make(), same = x;
  CHECK(bool(x));
  CHECK(x.rows() == 10);
  CHECK(!x.unique());
  REQUIRE(x.pending() != nullptr);
  CHECK(x.pending()->pieces() == 3);
  CHECK(calls == 0);
  CHECK(same.data()[19] == 19);
  CHECK(x.data() == same.data());
  CHECK(x.buffer() == same.buffer());
  CHECK(x.pending()->computed());
  CHECK(calls == 1);
  CHECK(computed == 10);
  Tensor<float, Exec> y = make();
  CHECK(y.unique());
  CHECK(y.data()[3] == 3);
  CHECK(y.unique());
  const Tensor<float, Exec> z = y;
  CHECK(!y.unique());
  Tensor<float, Exec> moved = std::move(y);
  CHECK(!y);
  CHECK(moved.data()[5] == 5);
}

TEST_CASE("a rank that reads its terms before the sum makes the same messages") {
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const auto context =
        Context<Compute<Exec, float>>(world.device(), detail::Environment{}).with<Invariant<tp>>(tp{}, world.communicator());
    const auto make = [&] {
      return Tensor<float, Exec, Partial<tp>>(world.device(), {10, 2},
                                              std::make_shared<detail::PendingRows>(
                                                  3, 10, [&] { return world.device().allocate(20 * sizeof(float)); },
                                                  [&](std::size_t first, std::size_t count, void* out) {
                                                    for (std::size_t i = 0; i < 2 * count; ++i)
                                                      static_cast<float*>(out)[i] = float(2 * first + i + world.rank());
                                                  }));
    };
    const auto read = [&](const auto& x) {
      if (world.rank() == 0) REQUIRE(x.data()[3] == 3);
    };
    const auto x = make(), z = make();
    read(x);
    read(z);
    const auto y = to<Replicated<tp>>(context, x);
    const auto part = to<Shard<tp, 0>>(context, z);
    auto last = make();
    read(last);
    const auto in_place = to<Replicated<tp>>(context, std::move(last));
    for (std::size_t i = 0; i < 20; ++i) {
      REQUIRE(y.data()[i] == float(2 * i + 1));
      REQUIRE(in_place.data()[i] == float(2 * i + 1));
    }
    for (std::size_t i = 0; i < 10; ++i) REQUIRE(part.data()[i] == float(2 * (i + 10 * std::size_t(world.rank())) + 1));
  });
  CHECK(code == 0);
}
