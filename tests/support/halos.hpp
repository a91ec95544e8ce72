// SPDX-License-Identifier: Apache-2.0
#pragma once
// Halos of pieces of any extents on the ranks of any backend: their rows, and their moves' backwards.
//
//   brings<4, 4, Border::periodic, comm::Mpi>({2, 2});

#include <cstddef>
#include <mutex>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/comm/threads.hpp>
#include <weft/context/context.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/halo.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft_test {

using namespace weft;

using Exec = DefaultDevice::execution_space;
using Numbers = std::vector<double>;
struct along : UserAxis<0> {
  static constexpr std::string_view name = "along";
};

template <class... P>
using X = Tensor<double, Exec, P...>;

template <class Backend = comm::Threads, class F>
void on_ranks(int ranks, F&& f) {
  std::mutex mutex;
  CHECK(run<Backend>(RunOptions{.ranks = ranks}, [&](World& world) {
          detail::Environment environment;
          const auto context =
              Context<Compute<Exec, double>>(world.device(), environment).with<Invariant<along>>(along{}, world.communicator());
          f(world, context, mutex);
        }) == 0);
}

inline double dot(const Numbers& a, const Numbers& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

inline Numbers drawn(std::size_t count, int seed) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = double((i * 37 + std::size_t(seed) * 11) % 17) - 8;
  return values;
}

// <move(x), g> - <x, dual move(g)> over all ranks, and the dual's type. A value that all ranks hold counts once.
template <class From, class To, class Context>
double defect(World& world, const Context& context, const Shape& from_shape) {
  const X<From> x(world.device(), from_shape);
  copy_from_host(x, std::span<const double>(drawn(x.size(), is_whole<From> ? 0 : world.rank())));
  const auto y = to<To>(context, x);
  const gradient_t<X<To>> g(world.device(), y.shape());
  copy_from_host(g, std::span<const double>(drawn(g.size(), 5 + world.rank())));
  const auto back = to<dual_t<From>>(context, g);
  static_assert(std::is_same_v<std::remove_const_t<decltype(back)>, gradient_t<X<From>>>);
  const bool counts = !is_whole<From> || world.rank() == 0;
  Numbers difference{dot(copy_to_host(y), copy_to_host(g)) - (counts ? dot(copy_to_host(x), copy_to_host(back)) : 0)};
  world.communicator().all_reduce(difference);
  return difference[0];
}

/// The rows [first, first + count) of a whole of `all` rows that repeats: row r has the value r.
inline Numbers rows_around(std::ptrdiff_t first, std::size_t count, std::ptrdiff_t all) {
  Numbers rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i] = double(((first + std::ptrdiff_t(i)) % all + all) % all);
  return rows;
}

/// Pieces of these rows have the right rows of their neighbours, and each move is the dual of its backward. Closed: rows that
/// would be beyond the border are left out.
template <int before, int after, Border border, class Backend = comm::Threads>
void brings(const std::vector<std::size_t>& pieces) {
  using Wide = Halo<along, 0, before, after, border>;
  INFO(before, " and ", after, " rows, ", pieces.size(), " ranks");
  const auto all = std::accumulate(pieces.begin(), pieces.end(), std::size_t(0));
  on_ranks<Backend>(int(pieces.size()), [&](World& world, const auto& context, std::mutex& mutex) {
    const auto rank = std::size_t(world.rank());
    const std::size_t own = pieces[rank], first = std::accumulate(pieces.begin(), pieces.begin() + world.rank(), std::size_t(0));
    const bool ring = border == Border::periodic;
    const std::size_t left = ring || rank != 0 ? before : 0, right = ring || rank + 1 != pieces.size() ? after : 0;
    const X<Shard<along, 0>> x(world.device(), {own});
    copy_from_host(x, std::span<const double>(rows_around(std::ptrdiff_t(first), own, std::ptrdiff_t(all))));
    const Numbers wide = copy_to_host(to<Wide>(context, x)),
                  wanted = rows_around(std::ptrdiff_t(first) - std::ptrdiff_t(left), left + own + right, std::ptrdiff_t(all));
    const double there = defect<Shard<along, 0>, Wide>(world, context, {own, 2}),
                 back = defect<Wide, Shard<along, 0>>(world, context, {left + own + right, 2});
    const std::lock_guard lock(mutex);
    CHECK(wide == wanted);
    CHECK(there == 0);
    CHECK(back == 0);
  });
}

}  // namespace weft_test
