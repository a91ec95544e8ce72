// SPDX-License-Identifier: Apache-2.0
// Moves of a cut between dims whose pieces have different extents: values and gradients of one rank, and refused pieces.
#include <weft/operations/cut_pieces.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/operations/along_dim.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/grad.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

#include "support/pieces_of_whole.hpp"

using namespace weft;
using namespace weft_test;

namespace {

using testing::detail::Made, testing::detail::Numbers, testing::detail::Root, testing::detail::distance;
using Sizes = std::vector<std::size_t>;

template <class F>
struct Formula : Module<Formula<F>> {
  explicit Formula(const auto&) {}
  auto forward(const auto& x) const { return F::of(x); }
};

/// A product in the space of frequencies. Channels, which the ranks do not divide, are cut in place of dims 2 and 3.
struct Product {
  static auto of(const auto& x) {
    const auto rows = cut_pieces<Shard<dx, 2>>(x);
    const auto columns = cut_pieces<Shard<dy, 3>>(x);
    const auto channels = cut_pieces<Shard<dx, 1>>(x);
    const auto down = to<Shard<dx, 1>>(x, rows, channels);
    const auto share = cut_pieces<Shard<dy, 1>>(down);
    const auto whole = to<Shard<dy, 1>>(down, share, columns);  // in any order
    const auto z = rfft<2, 3>(whole);
    const auto y = irfft<2, 3>(z * z * 0.1 + z, whole.shape()[3]);
    return to<Shard<dx, 2>>(to<Shard<dy, 3>>(y, share, columns), channels, rows) * x;
  }
};
/// Running sums along the cut dim.
struct Running {
  static auto of(const auto& x) {
    const CutPieces<dx, 2> rows = cut_pieces<Shard<dx, 2>>(x);         // of all ranks: 5, 2 and 3
    const CutPieces<dx, 1> channels = cut_pieces<Shard<dx, 1>>(x);     // 5 channels: 2, 2 and 1
    const auto sums = cumsum<2>(to<Shard<dx, 1>>(x, rows, channels));  // [samples, channels / dx, rows, columns]
    return to<Shard<dx, 2>>(sums, channels, rows) * x;
  }
};
/// Channels that the ranks divide.
struct Sums {
  static auto of(const auto& x) {
    const auto rows = cut_pieces<Shard<dx, 2>>(x);
    return to<Shard<dx, 2>>(cumsum<2>(to<Shard<dx, 1>>(square(x), rows)), rows) * x;
  }
};
/// A derivative of a formula with moves, which backward differentiates again.
struct Slope {
  static auto of(const auto& x) {
    return grad([](const auto& p) { return square(Product::of(p)) * p; }, x) * x;
  }
};

struct Outcome {
  Numbers y, dx;
};

template <class F, class... P, class Bind>
Outcome outcome_of(DefaultDevice& device, const Shape& piece, const Sizes& first, const Shape& whole, Bind&& bind) {
  Made made(device);
  const auto context = bind(
      Root(device, testing::detail::environment({}, piece), testing::detail::engine(made), testing::detail::construction(made)));
  Formula<F> layer(context);
  const auto step = weft::detail::step_context(context);
  Tensor<double, testing::detail::Exec, P...> x(device, piece);
  copy_from_host(x, std::span<const double>(numbers_of_piece(piece, first, whole, 0.1)));
  auto forward = weft::forward(layer, step, x);
  Outcome outcome{copy_to_host(forward.output), {}};
  REQUIRE(forward.output.shape() == piece);
  gradient_t<decltype(forward.output)> g(device, piece);
  copy_from_host(g, std::span<const double>(numbers_of_piece(piece, first, whole, 0.7)));
  outcome.dx = copy_to_host(weft::backward(layer, step, std::move(forward.saved), g));
  return outcome;
}

/// F of a field whose rows and columns are cut into these pieces equals one rank.
template <class F>
void equals_one_rank(std::size_t channels, const Sizes& rows, const Sizes& columns) {
  const auto sum = [](const Sizes& of, std::size_t count) {
    return std::accumulate(of.begin(), of.begin() + std::ptrdiff_t(count), std::size_t(0));
  };
  const Shape whole{2, channels, sum(rows, rows.size()), sum(columns, columns.size())};
  INFO(whole.text(), " over ", rows.size(), " x ", columns.size());
  Outcome one;
  std::mutex mutex;
  double off = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = int(rows.size() * columns.size())}, [&](World& world) {
    if (world.rank() == 0) one = outcome_of<F>(world.device(), whole, {0, 0, 0, 0}, whole, [](const Root& root) { return root; });
    world.communicator().barrier();
    const Mesh mesh(world, axes<dp, dx, dy>, {.dx = rows.size(), .dy = columns.size()});
    const std::size_t i = std::size_t(mesh.rank(dx{})), j = std::size_t(mesh.rank(dy{}));
    const Shape piece{2, channels, rows[i], columns[j]};
    const Sizes first{0, 0, sum(rows, i), sum(columns, j)};
    const Outcome mine =
        outcome_of<F, Shard<dp, 0>, Shard<dx, 2>, Shard<dy, 3>>(world.device(), piece, first, whole, [&](const Root& root) {
          return root.with<Shard<dp, 0>>(dp{}, mesh.comm(dp{}))
              .template with<Shard<dx, 2>>(dx{}, mesh.comm(dx{}))
              .template with<Shard<dy, 3>>(dy{}, mesh.comm(dy{}));
        });
    const std::lock_guard lock(mutex);
    off = std::max(off, distance(mine.y, piece_of_whole(one.y, piece, first, whole)));
    off = std::max(off, distance(mine.dx, piece_of_whole(one.dx, piece, first, whole)));
  });
  REQUIRE(code == 0);
  CHECK(off < 1e-13);
}

}  // namespace

TEST_CASE("uneven pieces of both dims") {
  equals_one_rank<Running>(5, {5, 2, 3}, {4});
  equals_one_rank<Product>(5, {5, 2, 3}, {4});
  equals_one_rank<Product>(4, {6}, {1, 4, 2, 3});
  equals_one_rank<Product>(5, {5, 2}, {3, 4});
  equals_one_rank<Product>(4, {3, 3}, {2, 2});
}
TEST_CASE("channels that the ranks divide") {
  equals_one_rank<Sums>(6, {5, 2, 3}, {4});
  equals_one_rank<Sums>(2, {1, 6}, {2, 3});
}
TEST_CASE("derivatives inside of grad") { equals_one_rank<Slope>(5, {5, 2}, {3, 4}); }

namespace {

/// The rows of another field.
struct Other {
  static auto of(const auto& x) {
    auto rows = cut_pieces<Shard<dx, 2>>(x);
    for (auto& extent : rows.extents) ++extent;
    return to<Shard<dx, 2>>(to<Shard<dx, 1>>(x, rows), rows);
  }
};
/// The way back with fewer rows than there are.
struct Fewer {
  static auto of(const auto& x) {
    auto rows = cut_pieces<Shard<dx, 2>>(x);
    const auto down = to<Shard<dx, 1>>(x, rows);
    --rows.extents[0];
    return to<Shard<dx, 2>>(down, rows);
  }
};
struct Few {
  static auto of(const auto& x) { return to<Shard<dx, 2>>(to<Shard<dx, 1>>(x, cut_pieces<Shard<dx, 1>>(x))); }
};

template <class F>
void refuses(std::size_t channels, const std::string& text) {
  std::mutex mutex;
  std::string found;
  const Shape whole{1, channels, 5, 2};
  CHECK(run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
          const Mesh mesh(world, axes<dp, dx>, {.dx = 2});
          const Shape piece{1, channels, world.rank() == 0 ? 3u : 2u, 2};
          try {
            outcome_of<F, Shard<dp, 0>, Shard<dx, 2>>(world.device(), piece, {0, 0, 0, 0}, whole, [&](const Root& root) {
              return root.with<Shard<dp, 0>>(dp{}, mesh.comm(dp{})).template with<Shard<dx, 2>>(dx{}, mesh.comm(dx{}));
            });
          } catch (const Error& error) {
            const std::lock_guard lock(mutex);
            found = error.what();
            throw;
          }
        }) != 0);
  CHECK_MESSAGE(found.find(text) != std::string::npos, found);
}

}  // namespace

TEST_CASE("pieces of another field, and fewer channels than ranks") {
  refuses<Other>(2, " elements, and the pieces of this rank have ");
  refuses<Fewer>(2,
                 "to<Shard<dx, 2>>: dim 2 of [1, 1, 5, 2] has 5 elements, and the pieces together have 4, over 2 ranks of dx(2): "
                 "take those of this dim, cut_pieces<Shard<dx, 2>>");
  refuses<Few>(1, "cut_pieces<Shard<dx, 1>>: dim 1 of [1, 1, ");
  refuses<Few>(1, ", 2] has fewer elements than dx(2) has ranks");
}
