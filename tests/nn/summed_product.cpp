// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/summed_product.hpp weft/tensor/sum_in_pieces.hpp weft/tensor/pending_rows.hpp weft/tensor/write_rows.hpp
// Sums over tp that follow their products in pieces: the same bits in every layout, and hidden behind the products if each
// message takes a time of its own.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include <weft/nn/lora.hpp>
#include <weft/nn/summed_product.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/sum_in_pieces.hpp>
#include <weft/tensor/write_rows.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/weft.hpp>

#include "support/summed_pieces.hpp"

using namespace weft_test;

namespace {
/// Sums of two blocks, which have `forward` and `backward` each, in two steps of two micro-batches and two evaluations.
constexpr std::uint64_t sums(std::uint64_t forward, std::uint64_t backward) { return 2 * 2 * 2 * (2 * forward + backward); }
}  // namespace

TEST_CASE("pieces of sums give the bits of whole sums") {
  SUBCASE("gpt, all-reduce") {
    check_pieces<Tensors<models::BasicGpt<double>>>(2, {.tp = 2}, gpt_config(), 0, {}, 100, 2 * sums(2, 2));
  }
  SUBCASE("gpt, reduce-scatter, zero bubble, shards of parameters") {
    check_pieces<Sequences<models::BasicGpt<double>>>(8, {.tp = 2, .pp = 2}, gpt_config(), 0,
                                                      {.pipeline = {.schedule = schedule::choose("zb-h1")}});
  }
  SUBCASE("llama, all-reduce, input gradients of several projections in one sum") {
    check_pieces<Tensors<models::BasicLlama<double>>>(4, {.tp = 4}, llama_config(), 0, {}, 128, sums(2, 2));
  }
  SUBCASE("llama, reduce-scatter, recomputation") {
    auto config = llama_config();
    config.recompute = Recomputation::full;
    const std::uint64_t ends = 2 * 2 * (2 * 1 + 2),  // the head's gather in forward, again in backward; the embedding's
        gathers = sums(2, 2 + 2) + ends;             // recomputed ones in backward, too
    check_pieces<Sequences<models::BasicLlama<double>>>(4, {.tp = 2}, config, 0, {}, 100, 2 * (sums(2, 2 + 2) + gathers));
  }
  SUBCASE("gpt with adapters, reduce-scatter, whose dropout needs the whole product of some layers") {
    check_pieces<Sequences<models::BasicGpt<double, Lora>>>(
        2, {.tp = 2}, gpt_config(), 0, {.lora = {.rank = 3, .dropout = 0.1, .match = {"*"}, .up_deviation = 0.1}});
  }
}
// oneDNN's product of a row in float depends on the number of rows, in its last bit.
TEST_CASE("pieces of sums in float differ by the rounding of products") {
  check_pieces<Tensors<models::BasicGpt<float>>>(2, {.tp = 2}, gpt_config(), 1e-5);
}
TEST_CASE("pieces of gathers in float, too") {
  check_pieces<Sequences<models::BasicLlama<float>>>(2, {.tp = 2}, llama_config(), 1e-5);
}

namespace {

using Exec = DefaultDevice::execution_space;

/// A term whose rows take `row_s` of the clock each to compute; row i is filled with i and the rank.
Tensor<float, Exec> slow_term(DefaultDevice& device, testing::RankClock& clock, std::size_t rows, std::size_t columns,
                              std::size_t pieces, double row_s, int rank) {
  return Tensor<float, Exec>(
      device, {rows, columns},
      std::make_shared<detail::PendingRows>(
          pieces, rows, [&device, rows, columns] { return device.allocate(rows * columns * sizeof(float)); },
          [=, &clock](std::size_t first, std::size_t count, void* out) {
            clock.pass(row_s * double(count));
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
    const auto clock = std::make_shared<testing::SimulatedClock>();
    const Communicator comm = testing::delay_messages(world.communicator(), shared, clock);
    for (const int scatter : {0, 1}) {
      const auto once = [&](double delay_s) {
        const std::size_t bytes = rows * columns * sizeof(float) / (scatter ? 2 : 1);  // of a call's count: a rank's part
        world.communicator().barrier();
        if (world.rank() == 0) shared->set({.seconds_per_byte = delay_s / double(bytes)});
        world.communicator().barrier();
        const Tensor<float, Exec> term = slow_term(world.device(), *clock, rows, columns, pieces, product_s / rows, world.rank());
        const double begin = clock->now(), before = testing::delayed(comm).seconds;
        Tensor<float, Exec> y(world.device(), {scatter ? rows / 2 : rows, columns});
        if (scatter) detail::reduce_scatter_in_pieces(comm, term, y);
        else detail::all_reduce_in_pieces(comm, term, y);
        const double took = clock->now() - begin;
        for (std::size_t row = 0; row < y.rows(); ++row) {
          const std::size_t place = row + (scatter ? std::size_t(world.rank()) * rows / 2 : 0);
          if (y.data()[row * columns] != 2 * float(place) + 1000) FAIL("row ", row);
        }
        if (world.rank() == 0) in_transit[scatter] = testing::delayed(comm).seconds - before;
        return took;
      };
      const double without = once(0), with = once(sum_s);
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
