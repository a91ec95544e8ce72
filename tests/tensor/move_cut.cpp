// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/to.hpp
// Moves of a cut from one dim to another over domain axes: the elements of each rank, the way back, axes that follow each other
// and refused extents.

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/context/context.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Numbers = std::vector<double>;
constexpr std::size_t dims = 5;
using Extents = std::array<std::size_t, dims>;
constexpr Extents whole{2, 12, 8, 4, 3};

// The elements [first, first + count) along each dim of a tensor with the extents `whole`; an element is its place there.
Numbers block(const Extents& first, const Extents& count) {
  Numbers values;
  Extents at{};
  const auto fill = [&](const auto& self, std::size_t dim, std::size_t place) -> void {
    if (dim == dims) return values.push_back(double(place));
    for (at[dim] = 0; at[dim] < count[dim]; ++at[dim]) self(self, dim + 1, place * whole[dim] + first[dim] + at[dim]);
  };
  fill(fill, 0, 0);
  return values;
}
// The part of a rank along `dim`, of what is left of it.
void cut(Extents& first, Extents& count, std::size_t dim, std::size_t ranks, std::size_t rank) {
  count[dim] /= ranks;
  first[dim] += rank * count[dim];
}
template <class... P>
Tensor<double, Exec, P...> tensor(DefaultDevice& device, const Extents& first, const Extents& count) {
  const Tensor<double, Exec, P...> x(device, Shape{count[0], count[1], count[2], count[3], count[4]});
  const Numbers values = block(first, count);
  copy_from_host(x, std::span<const double>(values));
  return x;
}
const auto over = [](World& world, auto... axes) {
  static detail::Environment environment;
  const auto bind = [](const auto& self, const auto& context, const auto& mesh, auto axis, auto... more) {
    const auto next = context.template with<Invariant<decltype(axis)>>(axis, mesh.comm(axis));
    if constexpr (sizeof...(more) == 0) return next;
    else return self(self, next, mesh, more...);
  };
  return [=, &world](const auto& mesh) {
    return bind(bind, Context<Compute<Exec, double>>(world.device(), environment), mesh, axes...);
  };
};

template <int From, int To>
void check_move(int ranks) {
  CAPTURE(ranks);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh mesh(world, axes<dx>, {.dx = std::size_t(ranks)});
          const auto context = over(world, dx{})(mesh);
          Extents first{}, count = whole, there{}, of_there = whole;
          cut(first, count, From, std::size_t(ranks), std::size_t(world.rank()));
          cut(there, of_there, To, std::size_t(ranks), std::size_t(world.rank()));
          const auto x = tensor<Shard<dx, From>>(world.device(), first, count);
          const auto y = to<Shard<dx, To>>(context, x);
          static_assert(std::is_same_v<std::remove_const_t<decltype(y)>, Tensor<double, Exec, Shard<dx, To>>>);
          const Numbers moved = copy_to_host(y), back = copy_to_host(to<Shard<dx, From>>(context, y));
          const std::lock_guard lock(mutex);
          CHECK(y.shape() == Shape{of_there[0], of_there[1], of_there[2], of_there[3], of_there[4]});
          CHECK(moved == block(there, of_there));
          CHECK(back == block(first, count));
        }) == 0);
}

}  // namespace

TEST_CASE("a cut moves to another dim, and back") {
  for (const int ranks : {1, 2, 4}) {
    check_move<2, 1>(ranks);
    check_move<1, 3>(ranks);
    check_move<3, 2>(ranks);
  }
  check_move<1, 4>(3);
}

TEST_CASE("cuts of two axes move to one dim, the later axis inside of the earlier one") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<dx, dy>, {.dx = 2, .dy = 2});
          const auto context = over(world, dx{}, dy{})(mesh);
          const std::size_t i = std::size_t(mesh.rank(dx{})), j = std::size_t(mesh.rank(dy{}));
          Extents first{}, count = whole, there{}, of_there = whole;
          cut(first, count, 2, 2, i), cut(first, count, 3, 2, j);
          cut(there, of_there, 1, 2, i), cut(there, of_there, 1, 2, j);
          const auto x = tensor<Shard<dx, 2>, Shard<dy, 3>>(world.device(), first, count);
          const auto y = to<Shard<dy, 1>>(context, to<Shard<dx, 1>>(context, x));
          const auto z = to<Shard<dx, 2>>(context, to<Shard<dy, 3>>(context, y));
          const Numbers moved = copy_to_host(y), back = copy_to_host(z);
          const std::lock_guard lock(mutex);
          CHECK(moved == block(there, of_there));
          CHECK(back == block(first, count));
        }) == 0);
}

TEST_CASE("extents that the ranks do not divide, and pieces of different extents") {
  const auto refusal = [](std::size_t channels, bool even) {
    std::mutex mutex;
    std::string found;
    CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
            const Mesh mesh(world, axes<dx>, {.dx = 2});
            const auto context = over(world, dx{})(mesh);
            const Tensor<double, Exec, Shard<dx, 2>> x(world.device(), {1, channels, even || world.rank() == 0 ? 5u : 4u});
            try {
              to<Shard<dx, 1>>(context, x);
            } catch (const Error& error) {
              const std::lock_guard lock(mutex);
              found = error.what();
              throw;
            }
          }) != 0);
    return found;
  };
  CHECK(refusal(3, true) ==
        "weft: to<Shard<dx, 1>>: dim 1 of [1, 3, 5] is not divisible by dx(2): give the pieces that it gets, "
        "cut_pieces<Shard<dx, 1>>(x)");
  const std::string uneven = refusal(4, false);
  CHECK_MESSAGE(uneven.find("all_to_all of 10 float64") != std::string::npos, uneven);
  CHECK_MESSAGE(uneven.find("rank 1 called all_to_all of 8 float64") != std::string::npos, uneven);
}
