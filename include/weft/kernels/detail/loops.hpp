// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loops that all kernels use. On hosts all of them share one Kokkos loop (device/parallel_for.hpp), elsewhere each is a plain
// parallel_for.
//
//   for_each(device, rows, KOKKOS_LAMBDA(std::size_t row) { ... });

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/detail/sweep.hpp>

namespace weft::kernels::detail {

using weft::detail::by_argument;
using weft::detail::HostLoop;
using weft::detail::run_on_host;
using weft::detail::share_on_host;
using weft::detail::threads_of;

template <class F>
WEFT_FLATTEN inline void call_body(const void* body, std::size_t begin, std::size_t end) {
  const F& f = *static_cast<const F*>(body);
  for (std::size_t i = begin; i < end; ++i) f(i);
}

/// Calls f(i) for each i of [0, n) on the device's threads.
template <class Exec, class F>
requires(on_host<Exec>) void for_each(Device<Exec>& device, std::size_t n, const F& f) {
  if (n != 0) run_on_host(device, HostLoop{&call_body<F>, &f, n});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each(Device<Exec>& device, std::size_t n, const F& f) {
  if (n != 0)
    Kokkos::parallel_for("weft", by_argument(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n)), f);
}

/// The number of threads among which so many multiplications and additions are shared out: each has enough to do to be worth the
/// time that it takes to join.
template <class Exec>
std::size_t threads_for(Device<Exec>& device, std::size_t operations) {
  constexpr std::size_t least = 1 << 16;
  const std::size_t threads = std::size_t(threads_of(device.exec()));
  return device.shares_short_loops() ? threads : std::min(threads, operations / least + 1);
}

/// Calls f(piece) for each piece of [0, pieces), of which there are as many as threads_for says, all at once.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_piece(Device<Exec>& device, std::size_t pieces, const F& f) {
  if (pieces != 0) share_on_host(device, HostLoop{&call_body<F>, &f, pieces});
}

/// The threads that compute one row of a matrix together: one thread on hosts, the lanes of a warp (Kokkos' vector) elsewhere.
/// All lanes know the sums; code between the sums runs in every lane.
struct OneThread {
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION void sweep(std::size_t n, const F& f) const {
    detail::sweep<V>(n, f);
  }
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION auto add_up(std::size_t n, const F& f) const {
    return detail::add_up<V>(n, f);
  }
  /// The largest of `lowest` and x[0 .. n).
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type maximum(std::size_t n, const T* x, typename V::value_type lowest) const {
    using A = typename V::value_type;
    V best = V(lowest);
    std::size_t i = 0;
    for (; i + V::size <= n; i += V::size) best = max_of(V::load(x + i), best);
    A result = largest(best);
    for (; i < n; ++i) result = A(x[i]) > result ? A(x[i]) : result;
    return result;
  }
  /// The sum of exp(x[i] - top) over [0, n).
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type total_of_powers(std::size_t n, const T* x,
                                                                     typename V::value_type top) const {
    using A = typename V::value_type;
    V total = V(A(0));
    std::size_t i = 0;
    for (; i + V::size <= n; i += V::size) total = total + exp(V::load(x + i) - V(top));
    A result = sum(total);
    for (; i < n; ++i) result += Kokkos::exp(A(x[i]) - top);
    return result;
  }
  /// The result of f() in one lane, computed before any lane continues.
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A same(const F& f) const {
    return f();
  }
  /// True for the one lane that writes the row's statistics.
  KOKKOS_FORCEINLINE_FUNCTION bool leads() const { return true; }
};

template <class Exec>
class RowTeam {
 public:
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Member = typename Policy::member_type;
  KOKKOS_FORCEINLINE_FUNCTION explicit RowTeam(const Member& member) : member_(&member) {}

  /// Calls f(i, 1) for each i of [0, n), each in one lane.
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION void sweep(std::size_t n, const F& f) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(*member_, n), [&](std::size_t i) { f(i, 1); });
  }
  /// The sum of f(i, 1), in an order that depends only on n and the number of lanes.
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION auto add_up(std::size_t n, const F& f) const {
    using Sum = decltype(f(n, n));
    if constexpr (requires(Sum s) { s.second; }) {
      return Sum(V(add<V>(n, [&](std::size_t i) { return f(i, 1).first; })),
                 V(add<V>(n, [&](std::size_t i) { return f(i, 1).second; })));
    } else {
      return Sum(add<V>(n, [&](std::size_t i) { return f(i, 1); }));
    }
  }
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type maximum(std::size_t n, const T* x, typename V::value_type lowest) const {
    using A = typename V::value_type;
    A result = lowest;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(*member_, n), [&](std::size_t i, A& best) { best = A(x[i]) > best ? A(x[i]) : best; },
        Kokkos::Max<A>(result));
    return result > lowest ? result : lowest;
  }
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type total_of_powers(std::size_t n, const T* x,
                                                                     typename V::value_type top) const {
    using A = typename V::value_type;
    return add<V>(n, [&](std::size_t i) { return V(Kokkos::exp(A(x[i]) - top)); });
  }
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A same(const F& f) const {
    A value = 0;
    Kokkos::single(
        Kokkos::PerThread(*member_), [&](A& found) { found = f(); }, value);
    return value;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool leads() const {
    bool leader = false;
    Kokkos::single(Kokkos::PerThread(*member_), [&] { leader = true; });
    return leader;
  }

 private:
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type add(std::size_t n, const F& f) const {
    typename V::value_type total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(*member_, n), [&](std::size_t i, typename V::value_type& sum) { sum += f(i).v[0]; }, total);
    return total;
  }
  const Member* member_;
};

/// The type of the second argument of a row's body.
template <class Exec>
using row_team = std::conditional_t<on_host<Exec>, OneThread, RowTeam<Exec>>;

template <class F>
struct OneThreadBody {
  F f;
  void operator()(std::size_t row) const { f(row, OneThread()); }
};
template <class Exec, class F>
struct RowTeamBody {
  F f;
  std::size_t rows;
  KOKKOS_FUNCTION void operator()(const typename RowTeam<Exec>::Member& member) const {
    const std::size_t row = std::size_t(member.league_rank()) * std::size_t(member.team_size()) + std::size_t(member.team_rank());
    if (row < rows) f(row, RowTeam<Exec>(member));
  }
};

/// Calls f(row, team) for each row of [0, rows), with `team` a row_team<Exec>.
template <class Exec, class F>
requires(on_host<Exec>) void for_each_row(Device<Exec>& device, std::size_t rows, const F& f) {
  for_each(device, rows, OneThreadBody<F>{f});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_row(Device<Exec>& device, std::size_t rows, const F& f) {
  using Policy = typename RowTeam<Exec>::Policy;
  const int lanes = std::min(32, Policy::vector_length_max()), rows_of_team = lanes == 32 ? 4 : 1;
  if (rows != 0)
    Kokkos::parallel_for(
        "weft",
        by_argument(
            Policy(device.exec(), int((rows + std::size_t(rows_of_team) - 1) / std::size_t(rows_of_team)), rows_of_team, lanes)),
        RowTeamBody<Exec, F>{f, rows});
}

/// Calls f(i, count) for the pieces of [0, n) that fit into V.
template <class V, class Exec, class F>
requires(on_host<Exec>) void for_lanes(Device<Exec>& device, std::size_t n, const F& f) {
  constexpr std::size_t block = 4096;
  for_each(device, (n + block - 1) / block, [=](std::size_t b) {
    const std::size_t first = b * block;
    sweep<V>(std::min(block, n - first), [&](std::size_t i, std::size_t count) { f(first + i, count); });
  });
}
template <class V, class Exec, class F>
requires(!on_host<Exec>) void for_lanes(Device<Exec>& device, std::size_t n, const F& f) {
  for_each(
      device, n, KOKKOS_LAMBDA(std::size_t i) { f(i, 1); });
}

/// *out = the sum over [0, n) of f(begin, end), each call on one block of a fixed size, in double: the same bits for any number
/// of threads on hosts.
template <class Exec, class F>
requires(on_host<Exec>) void sum_blocks(Device<Exec>& device, std::size_t n, double* out, const F& f) {
  constexpr std::size_t block = 16384;
  const std::size_t blocks = (n + block - 1) / block;
  const weft::detail::Buffer buffer = device.allocate(blocks * sizeof(double));
  double* partial = static_cast<double*>(buffer.get());
  for_each(device, blocks, [=](std::size_t b) { partial[b] = f(b * block, std::min((b + 1) * block, n)); });
  double total = 0;
  for (std::size_t b = 0; b < blocks; ++b) total += partial[b];
  *out = total;
}
template <class Exec, class F>
requires(!on_host<Exec>) void sum_blocks(Device<Exec>& device, std::size_t n, double* out, const F& f) {
  Kokkos::View<double, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> result(out);
  Kokkos::parallel_reduce(
      "weft", by_argument(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, n)),
      KOKKOS_LAMBDA(std::size_t i, double& total) { total += f(i, i + 1); }, result);
}

}  // namespace weft::kernels::detail
