// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/pending_rows.hpp weft/operations/products.hpp weft/nn/gathered_product.hpp
// Gathers of rows in pieces: the values, the products by blocks that come before the last piece, and every other use, which waits
// for all rows.
#include <weft/tensor/gather_in_pieces.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <weft/context/context.hpp>
#include <weft/nn/gathered_product.hpp>
#include <weft/operations/products.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/add.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>
#include <weft/testing/delay_messages.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
template <class... P>
using X = Tensor<double, Exec, P...>;

double value_of(std::size_t row, std::size_t column) { return double(row) + 0.01 * double(column) + 1.0 / double(3 + row % 7); }

// Rows [first, first + count).
template <class P>
X<P> rows_of(DefaultDevice& device, std::size_t first, std::size_t count, std::size_t columns) {
  X<P> x(device, {count, columns});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = value_of(first + i / columns, i % columns);
  return x;
}
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// f(context, this rank's rows of a matrix of `rows` for each rank, all rows) on every rank, with and without pieces.
template <class F>
void on_ranks(int ranks, std::size_t rows, std::size_t columns, F f) {
  const int code = runtime::run<comm::Threads>(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    for (const std::size_t piece_bytes : {std::size_t(0), std::size_t(64)}) {
      detail::EngineState engine;
      engine.piece_bytes = piece_bytes;
      const auto context = Context<Compute<Exec, double>>(world.device(), detail::Environment{}, engine)
                               .template with<Invariant<tp>>(tp{}, world.communicator());
      const auto own = rows_of<Shard<tp, 0>>(world.device(), std::size_t(world.rank()) * rows, rows, columns);
      f(context, own, rows_of<Replicated<tp>>(world.device(), 0, rows * std::size_t(ranks), columns), piece_bytes != 0);
    }
  });
  CHECK(code == 0);
}

}  // namespace

TEST_CASE("rows that arrive are those of a gather, for every use") {
  for (const int ranks : {2, 3, 4})
    on_ranks(ranks, 101, 3, [](const auto& context, const auto& own, const auto& all, bool pieces) {
      const auto whole = to<Replicated<tp>>(context, own);
      REQUIRE((whole.arriving() != nullptr) == pieces);
      REQUIRE(whole.pending() == nullptr);
      REQUIRE(bool(whole));
      REQUIRE(whole.shape() == all.shape());
      const auto copy = whole;
      REQUIRE(same_bits(whole, all));
      REQUIRE(copy.data() == whole.data());
      REQUIRE(!whole.unique());
      auto taken = to<Replicated<tp>>(context, own);
      REQUIRE(taken.unique());
      REQUIRE(same_bits(taken, all));
      const auto sum = detail::sum_of(to<Replicated<tp>>(context, own), to<Replicated<tp>>(context, own));
      for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(sum.data()[i] == 2 * all.data()[i]);
      const auto back = to<Shard<tp, 0>>(context, to<Invariant<tp>>(context, to<Replicated<tp>>(context, own)));
      REQUIRE(same_bits(back, own));
      const auto term = to<Invariant<tp>>(context, to<Partial<tp>>(context, to<Replicated<tp>>(context, own)));
      REQUIRE(same_bits(term, all));
      { const auto unused = to<Replicated<tp>>(context, own); }  // its messages end with it
    });
}

TEST_CASE("products take rows as they arrive, and have the bits of a product of all rows in double") {
  for (const int ranks : {2, 4})
    on_ranks(ranks, 160, 5, [](const auto& context, const auto& own, const auto& all, bool) {
      auto& device = context.device();
      const auto w = rows_of<Shard<tp, 0>>(device, 7, 9, 5);
      const auto v = rows_of<Shard<tp, 1>>(device, 3, 5, 9);
      const X<Shard<tp, 0>> bias(device, {9});
      for (std::size_t i = 0; i < 9; ++i) bias.data()[i] = 0.1 * double(i);
      const auto arriving = [&] { return to<Replicated<tp>>(context, own); };
      const auto whole = arriving();
      REQUIRE(same_bits(contract<0, 0>(whole, w), contract<0, 0>(all, w)));
      REQUIRE(same_bits(contract<0, 1>(whole, v), contract<0, 1>(all, v)));  // all have arrived
      REQUIRE(same_bits(contract<0, 1>(arriving(), v), contract<0, 1>(all, v)));
      REQUIRE(same_bits(linear<0>(arriving(), w, bias), linear<0>(all, w, bias)));
      REQUIRE(same_bits(contract<1, 1>(arriving(), all), contract<1, 1>(all, all)));
      REQUIRE(same_bits(contract<1, 1>(all, arriving()), contract<1, 1>(all, all)));
      REQUIRE(same_bits(contract<0, 0>(all, arriving()), contract<0, 0>(all, all)));
      const auto [before, after] = linear_gelu<0>(arriving(), w, bias);
      const auto [plain, gelu] = linear_gelu<0>(all, w, bias);
      REQUIRE(same_bits(before, plain));
      REQUIRE(same_bits(after, gelu));
      REQUIRE(same_bits(contract_gelu<1>(arriving(), v, before), contract_gelu<1>(all, v, plain)));
    });
}

TEST_CASE("a product multiplies this rank's rows before it waits, and each piece before the next one") {
  DefaultDevice device;
  Rehearsal notes;
  device.count(notes);
  constexpr std::size_t ranks = 3, rank = 1, rows = 10, pieces = 2;
  const auto all = rows_of<Replicated<tp>>(device, 0, ranks * rows, 4), w = rows_of<Replicated<tp>>(device, 5, 6, 4);
  const auto expected = contract<0, 0>(all, w);
  const std::uint64_t start = notes.products;
  std::vector<std::uint64_t> made;  // products when each piece was waited for
  X<Replicated<tp>> x(device, all.shape());
  std::fill_n(x.data(), x.size(), NAN);
  const auto put = [&](std::size_t first, std::size_t count) {
    std::copy_n(all.data() + first * 4, count * 4, x.data() + first * 4);
  };
  put(rank * rows, rows);
  int progress = 0;
  auto arriving = std::make_shared<detail::ArrivingRows>(
      detail::ArrivingRows::Layout{ranks, rank, rows, pieces}, x.data(),
      [&](std::size_t piece) {
        made.push_back(notes.products - start);
        REQUIRE(piece + 1 == made.size());
        for (std::size_t other = 0; other < ranks; ++other) put(other * rows + piece * 5, 5);
      },
      [&] { ++progress; });
  const X<Replicated<tp>> y(device, x.shape(), std::make_shared<detail::PendingRows>(arriving, x.buffer()));
  REQUIRE(same_bits(contract<0, 0>(y, w), expected));
  CHECK(made == std::vector<std::uint64_t>{pieces, pieces + ranks - 1});
  CHECK(progress > 0);
  REQUIRE(same_bits(contract<0, 0>(y, w), expected));  // again, by the same blocks
  CHECK(notes.products - start == 2 * pieces * ranks);
  CHECK(made.size() == pieces);
  CHECK(same_bits(y, all));
}

TEST_CASE("delays of the ring of a Column layer's rows are hidden behind its products") {
  constexpr std::size_t rows = 64, columns = 8;
  constexpr double product_s = 0.16;  // of all rows
  for (const int ranks : {2, 4}) {
    double hidden = 0, in_transit = 0;
    const double message_s = 0.9 * product_s / ranks;
    const auto network = std::make_shared<testing::SlowNetwork>();
    const int code = runtime::run<comm::Threads>(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
      const auto clock = std::make_shared<testing::SimulatedClock>();
      const Communicator comm = testing::delay_messages(world.communicator(), network, clock);
      const auto own = rows_of<Shard<tp, 0>>(world.device(), 0, rows / std::size_t(ranks), columns);
      const auto once = [&](double delay_s) {
        world.communicator().barrier();
        network->set({.seconds = delay_s});
        world.communicator().barrier();
        const double begin = clock->now(), before = testing::delayed(comm).seconds;
        detail::for_each_rank_rows(comm, own, [&](const double*, std::size_t, auto&& progress) {
          for (int part = 0; part < 4; ++part, progress()) clock->pass(product_s / ranks / 4);
        });
        if (world.rank() == 0 && delay_s != 0) in_transit = testing::delayed(comm).seconds - before;
        return clock->now() - begin;
      };
      const double without = once(0), with = once(message_s);
      if (world.rank() == 0) hidden = 1 - (with - without) / in_transit;
    });
    CHECK(code == 0);
    INFO(ranks, " ranks: hidden ", hidden);
    CHECK(in_transit == doctest::Approx((ranks - 1) * message_s));
    CHECK(hidden >= 0.8);
  }
}
