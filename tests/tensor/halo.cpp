// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/around.hpp weft/tensor/halo_exchange.hpp
// Halos of a dim that an axis cuts: the rows that each rank has, their way back, corners, uneven and narrow pieces.
#include <weft/tensor/halo.hpp>

#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/context/context.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/halo_exchange.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

#include "support/counted_group.hpp"
#include "support/halos.hpp"

using namespace weft;
using namespace weft_test;

namespace {

struct across : UserAxis<1> {
  static constexpr std::string_view name = "across";
};

// The value of row r of the whole, and the column.
double value_of(std::size_t outer, std::size_t row, std::size_t inner) { return double(100 * outer + 10 * row + inner); }

// [2, count, 3]: rows from `first` on of a whole tensor.
template <class P>
X<P> rows_of(DefaultDevice& device, std::size_t first, std::size_t count) {
  X<P> x(device, {2, count, 3});
  Numbers values;
  for (std::size_t outer = 0; outer < 2; ++outer)
    for (std::size_t row = 0; row < count; ++row)
      for (std::size_t inner = 0; inner < 3; ++inner) values.push_back(value_of(outer, first + row, inner));
  copy_from_host(x, std::span<const double>(values));
  return x;
}

// The pieces of a whole of 3, 5, 4, ... rows.
std::size_t rows_on(int rank) { return rank == 0 ? 3 : rank == 1 ? 5 : 4; }
std::size_t first_on(int rank) { return rank == 0 ? 0 : first_on(rank - 1) + rows_on(rank - 1); }

}  // namespace

TEST_CASE("a halo has the rows of the neighbours that exist") {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [&](World& world, const auto& context, std::mutex& mutex) {
      const int rank = world.rank();
      const std::size_t first = first_on(rank), own = rows_on(rank);
      const std::size_t above = rank > 0, below = rank + 1 < ranks;
      const auto x = rows_of<Shard<along, 1>>(world.device(), first, own);
      const auto wide = to<Halo<along, 1, 2, 1>>(context, x);
      const Numbers got = copy_to_host(wide), same = copy_to_host(to<Shard<along, 1>>(context, wide)),
                    narrow = copy_to_host(to<Halo<along, 1, 1, 0>>(context, wide));
      const auto expected = [&](std::size_t before, std::size_t after) {
        return copy_to_host(
            rows_of<Shard<along, 1>>(world.device(), first - above * before, own + above * before + below * after));
      };
      const Numbers wanted = expected(2, 1), of_narrow = expected(1, 0), of_own = copy_to_host(x);
      const std::lock_guard lock(mutex);
      CHECK(got == wanted);
      CHECK(narrow == of_narrow);
      CHECK(same == of_own);
    });
}

TEST_CASE("terms go home and are added") {
  on_ranks(3, [&](World& world, const auto& context, std::mutex& mutex) {
    const int rank = world.rank();
    const std::size_t own = rows_on(rank), before = rank > 0 ? 2 : 0, after = rank < 2 ? 1 : 0;
    const X<HaloTerms<along, 1, 2, 1>> terms(world.device(), {1, before + own + after, 1});
    copy_from_host(terms, std::span<const double>(Numbers(terms.size(), double(rank + 1))));
    const Numbers sums = copy_to_host(to<Shard<along, 1>>(context, terms));
    Numbers expected(own, double(rank + 1));
    if (rank > 0) expected[0] += rank;                                           // one row that the previous rank has
    if (rank < 2) expected[own - 1] += rank + 2, expected[own - 2] += rank + 2;  // two that the next one has
    const std::lock_guard lock(mutex);
    CHECK(sums == expected);
  });
}

TEST_CASE("over a periodic border the last rank is the previous one of the first, on one rank as well") {
  using Ring = Halo<along, 1, 2, 1, Border::periodic>;
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [&](World& world, const auto& context, std::mutex& mutex) {
      const std::size_t own = rows_on(world.rank()), first = first_on(world.rank()), all = first_on(ranks);
      const X<Shard<along, 1>> x(world.device(), {1, own, 1});
      Numbers mine, wanted, narrow, sums;
      for (std::size_t i = 0; i < own; ++i) mine.push_back(double(first + i));
      copy_from_host(x, std::span<const double>(mine));
      for (std::size_t i = 0; i < own + 3; ++i) wanted.push_back(double((first + i + all - 2) % all));
      for (std::size_t i = 0; i < own + 1; ++i) narrow.push_back(double((first + i + all - 1) % all));
      const auto wide = to<Ring>(context, x);
      const Numbers got = copy_to_host(wide), of_narrow = copy_to_host(to<Halo<along, 1, 1, 0, Border::periodic>>(context, wide)),
                    of_own = copy_to_host(to<Shard<along, 1>>(context, wide));
      const X<HaloTerms<along, 1, 2, 1, Border::periodic>> ones(world.device(), wide.shape());
      copy_from_host(ones, std::span<const double>(Numbers(ones.size(), 1.0)));
      const Numbers uses = copy_to_host(to<Shard<along, 1>>(context, ones));  // how often a row is in a piece with its halo
      sums.assign(own, 1.0);
      sums[0] += 1, sums[own - 1] += 1, sums[own - 2] += 1;
      const double arrives = defect<Shard<along, 1>, Ring>(world, context, {2, own, 3}),
                   drops = defect<Ring, Shard<along, 1>>(world, context, {2, own + 3, 3}),
                   narrows = defect<Ring, Halo<along, 1, 0, 1, Border::periodic>>(world, context, {2, own + 3, 3});
      const std::lock_guard lock(mutex);
      CHECK(got == wanted);
      CHECK(of_narrow == narrow);
      CHECK(of_own == mine);
      CHECK(uses == sums);
      CHECK(arrives == 0);
      CHECK(drops == 0);
      CHECK(narrows == 0);
    });
}

TEST_CASE("each move is the dual of its backward") {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [&](World& world, const auto& context, std::mutex& mutex) {
      const std::size_t own = rows_on(world.rank()), above = world.rank() > 0, below = world.rank() + 1 < ranks;
      const auto piece = [&](std::size_t before, std::size_t after) { return Shape{2, own + above * before + below * after, 3}; };
      const double arrives = defect<Shard<along, 1>, Halo<along, 1, 2, 1>>(world, context, piece(0, 0)),
                   drops = defect<Halo<along, 1, 2, 1>, Shard<along, 1>>(world, context, piece(2, 1)),
                   narrows = defect<Halo<along, 1, 2, 1>, Halo<along, 1, 0, 1>>(world, context, piece(2, 1)),
                   widens = defect<Halo<along, 1, 1, 0>, Halo<along, 1, 1, 3>>(world, context, piece(1, 0)),
                   enters = defect<Invariant<along>, Halo<along, 1, 1>>(world, context, {1, std::size_t(6 * ranks), 1});
      const std::lock_guard lock(mutex);
      CHECK(arrives == 0);
      CHECK(drops == 0);
      CHECK(narrows == 0);
      CHECK(widens == 0);
      CHECK(enters == 0);
    });
}

TEST_CASE("the second of two exchanges brings the corners") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          detail::Environment environment;
          const int row = world.rank() / 2, column = world.rank() % 2;
          const Communicator down = world.communicator().split(column, row, "along"),
                             right = world.communicator().split(row, column, "across");
          const auto context = Context<Compute<Exec, double>>(world.device(), environment)
                                   .with<Invariant<along>>(along{}, down)
                                   .with<Invariant<across>>(across{}, right);
          const X<Shard<along, 0>, Shard<across, 1>> x(world.device(), {1, 1});
          copy_from_host(x, std::span<const double>(Numbers{double(world.rank())}));
          const Numbers all = copy_to_host(to<Halo<across, 1, 1>>(context, to<Halo<along, 0, 1>>(context, x)));
          const std::lock_guard lock(mutex);
          CHECK(all == Numbers{0, 1, 2, 3});
        }) == 0);
}

TEST_CASE("a halo wider than the pieces has rows of the second and third neighbours") {
  constexpr Border closed = Border::closed, ring = Border::periodic;
  brings<3, 2, closed>({3, 1, 2, 1, 4});
  brings<5, 5, closed>({5, 2, 2, 1, 3, 6});
  brings<4, 0, closed>({4, 1, 1, 1, 1});
  brings<0, 4, closed>({1, 1, 1, 4});
  brings<4, 4, ring>({2, 2, 2, 2});
  brings<4, 4, ring>({3, 2});
  brings<5, 3, ring>({3, 3});
  brings<5, 4, ring>({5, 2, 3});
  brings<4, 5, ring>({2, 6, 2});
  brings<6, 3, ring>({2, 2, 2});
  brings<2, 5, ring>({2, 3, 2, 4, 2});
  brings<1, 2, ring>({2, 3, 4});
  brings<4, 4, ring>({4});
}

namespace {

/// The error of the ranks that refuse a halo of pieces of these rows.
template <class Wide>
std::string refused(const std::vector<std::size_t>& pieces) {
  std::string text;
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = int(pieces.size())}, [&](World& world) {
          detail::Environment environment;
          const auto context =
              Context<Compute<Exec, double>>(world.device(), environment).with<Invariant<along>>(along{}, world.communicator());
          const auto x = rows_of<Shard<along, 1>>(world.device(), 0, pieces[std::size_t(world.rank())]);
          try {
            to<Wide>(context, x);
          } catch (const ShapeError& error) {
            const std::lock_guard lock(mutex);
            text = error.what();
            throw;
          }
        }) != 0);
  return text;
}

}  // namespace

TEST_CASE("pieces without rows, at a border and of a ring with one row are refused, and no rank waits") {
  const std::string fewer = ": cut the dim over fewer ranks, or take a narrower halo";
  const auto finds = [](const std::string& text, const std::string& part) { CHECK_MESSAGE(text.find(part) != text.npos, text); };
  finds(refused<Halo<along, 1, 2>>({4, 0, 4}), "has 0 rows along dim 1, and a neighbour asks for 2" + fewer);
  finds(refused<Halo<along, 1, 2>>({1, 4, 4}),
        "has 1 rows along dim 1, and a neighbour asks for 2 at the border of the domain" + fewer);
  finds(refused<Halo<along, 1, 2>>({4, 4, 1}),
        "has 1 rows along dim 1, and a neighbour asks for 2 at the border of the domain" + fewer);
  using Ring = Halo<along, 1, 4, 1, Border::periodic>;
  finds(refused<Ring>({1, 2, 4}),
        "has 1 rows along dim 1, and a neighbour asks for 4 of a ring, whose pieces have at least 2" + fewer);
  finds(refused<Ring>({3}), "has 3 rows along dim 1, and a neighbour asks for 4 of a ring, whose pieces have at least 4" + fewer);
}

TEST_CASE("a rehearsed rank with a narrow piece sends the messages of a real one") {
  using Closed = Halo<along, 1, 5>;
  using Ring = Halo<along, 1, 5, 3, Border::periodic>;
  const std::vector<std::size_t> pieces{5, 2, 6};
  const auto exchange = [&](World& world, const Communicator& comm) {
    detail::Environment environment;
    const auto context = Context<Compute<Exec, double>>(world.device(), environment).with<Invariant<along>>(along{}, comm);
    const X<Shard<along, 1>> x(world.device(), {2, pieces[std::size_t(comm.rank())], 3});
    const auto terms = [&](const auto& y) { return relabel<gradient_t<std::remove_cvref_t<decltype(y)>>>(y); };
    to<Shard<along, 1>>(context, terms(to<Closed>(context, x)));
    to<Shard<along, 1>>(context, terms(to<Ring>(context, x)));
  };
  std::vector<Rehearsal> real(3);
  CHECK(run(RunOptions{.ranks = 3},
            [&](World& world) { exchange(world, counted(world.communicator(), real[std::size_t(world.rank())])); }) == 0);
  for (const int rank : {0, 1, 2}) {
    const Rehearsal notes = rehearse({.rank = rank, .ranks = 3}, [&](World& world) { exchange(world, world.communicator()); });
    const auto sent = notes.of("world", "send"), wanted = real[std::size_t(rank)].of("world", "send");
    CHECK(sent.calls == wanted.calls);
    CHECK(sent.bytes == wanted.bytes);
    // Rows of 6 doubles: 5 to each neighbour at a closed border, 8 around a ring, in messages of 2; there and back.
    CHECK(sent.bytes == 2 * (rank == 1 ? 18 : 13) * 6 * sizeof(double));
    CHECK(sent.calls == 2 * (rank == 1 ? 2 + 5 : 1 + 5));
  }
}
