// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loops of all kernels. On hosts they run on the device's threads (device/parallel_for.hpp), elsewhere as plain parallel_for
// of Kokkos.
//
//   for_each(device, {"norm", 2 * rows * width * sizeof(T)}, rows, KOKKOS_LAMBDA(std::size_t row) { ... });

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
using weft::detail::run_pieces;
using weft::detail::threads_of;
using weft::detail::Traffic;

template <class F>
WEFT_FLATTEN inline void call_body(const void* body, std::size_t begin, std::size_t end) {
  const F& f = *static_cast<const F*>(body);
  for (std::size_t i = begin; i < end; ++i) f(i);
}

/// Calls f(i) for each i of [0, n) on the device's threads.
template <class Exec, class F>
requires(on_host<Exec>) void for_each(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  if (n != 0) run_on_host(device, traffic, HostLoop{&call_body<F>, &f, n});
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_each(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  weft::detail::for_each_index(device, traffic, n, f);
}

/// The number of threads for this many multiplications and additions: each thread has enough work to justify the time of joining.
template <class Exec>
std::size_t threads_for(Device<Exec>& device, std::size_t operations) {
  constexpr std::size_t least = 1 << 16;
  const std::size_t threads = std::size_t(device.threads());
  return device.shares_short_loops() ? threads : std::min(threads, operations / least + 1);
}

/// Calls f(piece, thread) for each piece of [0, pieces); thread is the number of the running thread, below threads_of(exec).
template <class Exec, class F>
requires(on_host<Exec>) void for_each_piece(Device<Exec>& device, Traffic traffic, std::size_t pieces, const F& f) {
  if (pieces == 0) return;
  if (pieces == 1 && device.rehearsal() == nullptr) {
    const weft::detail::ObservedKernel kernel(traffic.kind);
    return f(std::size_t(0), std::size_t(0));
  }
  const auto call = [](const void* body, std::size_t piece, std::size_t thread) {
    (*static_cast<const F*>(body))(piece, thread);
  };
  run_pieces(device, traffic, weft::detail::TeamLoop{call, &f, pieces});
}

/// The threads that compute one row of a matrix together: one thread on hosts, otherwise the lanes of a warp (Kokkos' vector).
/// All lanes receive the sums; code between the sums runs in every lane.
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
  /// Calls f(i) for each i of [0, n).
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each(std::size_t n, const F& f) const {
    for (std::size_t i = 0; i < n; ++i) f(i);
  }
  /// Runs f(i, total), which adds to `total`, for each i of [0, n): in order on hosts, elsewhere with one sum per lane.
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A total(std::size_t n, const F& f) const {
    A sum = 0;
    for (std::size_t i = 0; i < n; ++i) f(i, sum);
    return sum;
  }
  /// The result of f() in one lane, computed before any lane continues.
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A same(const F& f) const {
    return f();
  }
  /// True for the one lane that writes the row's statistics.
  KOKKOS_FORCEINLINE_FUNCTION bool leads() const { return true; }
};

/// A Kokkos reducer for any Value with a `join`.
template <class Value>
class Joined {
 public:
  using reducer = Joined;
  using value_type = Value;
  using result_view_type = Kokkos::View<Value, Kokkos::AnonymousSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  KOKKOS_FORCEINLINE_FUNCTION explicit Joined(Value& value) : value_(&value) {}
  KOKKOS_FORCEINLINE_FUNCTION void join(Value& a, const Value& b) const { a.join(b); }
  KOKKOS_FORCEINLINE_FUNCTION void init(Value& value) const { value = Value(); }
  KOKKOS_FORCEINLINE_FUNCTION Value& reference() const { return *value_; }
  KOKKOS_FORCEINLINE_FUNCTION result_view_type view() const { return result_view_type(value_); }
  KOKKOS_FORCEINLINE_FUNCTION bool references_scalar() const { return true; }

 private:
  Value* value_;
};
template <class A>
struct TwoSums {
  A first = A(0), second = A(0);
  KOKKOS_FORCEINLINE_FUNCTION void join(const TwoSums& other) { first += other.first, second += other.second; }
};
/// The running maximum, and the sum of exp(x - maximum).
template <class A>
struct PowerSum {
  A top = Kokkos::Experimental::finite_min_v<A>, total = A(0);
  KOKKOS_FORCEINLINE_FUNCTION void raise(A x) {
    if (!(x > top)) return;
    total *= Kokkos::exp(top - x);
    top = x;
  }
  KOKKOS_FORCEINLINE_FUNCTION void join(const PowerSum& other) {
    raise(other.top);
    total += other.total * Kokkos::exp(other.top - top);
  }
};

template <class Exec>
class RowTeam {
 public:
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Member = typename Policy::member_type;
  KOKKOS_FORCEINLINE_FUNCTION explicit RowTeam(const Member& member) : member_(&member) {}

  /// Calls f(i, count) for the pieces of [0, n) of the size of V, each in one lane.
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION void sweep(std::size_t n, const F& f) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(*member_, (n + V::size - 1) / V::size), [&](std::size_t piece) {
      const std::size_t i = piece * V::size;
      f(i, n - i < V::size ? n - i : V::size);
    });
  }
  /// The sum of f(i, count), in an order that depends only on n and the number of lanes. Returns a V, or Two of them, whose first
  /// lane has the sum and whose other lanes are 0.
  template <class V, class F>
  KOKKOS_FORCEINLINE_FUNCTION auto add_up(std::size_t n, const F& f) const {
    using Sum = decltype(f(n, n));
    using A = typename V::value_type;
    if constexpr (requires(Sum s) { s.second; }) {
      TwoSums<A> sums;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(*member_, (n + V::size - 1) / V::size),
          [&](std::size_t piece, TwoSums<A>& part) {
            const std::size_t i = piece * V::size;
            const Sum both = f(i, n - i < V::size ? n - i : V::size);
            part.first += sum(both.first), part.second += sum(both.second);
          },
          Joined<TwoSums<A>>(sums));
      return Sum(V::first(V(sums.first), 1, A(0)), V::first(V(sums.second), 1, A(0)));
    } else {
      A total = 0;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(*member_, (n + V::size - 1) / V::size),
          [&](std::size_t piece, A& part) {
            const std::size_t i = piece * V::size;
            part += sum(f(i, n - i < V::size ? n - i : V::size));
          },
          total);
      return Sum(V::first(V(total), 1, A(0)));
    }
  }
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type maximum(std::size_t n, const T* x, typename V::value_type lowest) const {
    using A = typename V::value_type;
    A result = lowest;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(*member_, (n + V::size - 1) / V::size),
        [&](std::size_t piece, A& best) {
          const std::size_t i = piece * V::size;
          const A here = weft::kernels::detail::largest_of(V::load(x + i, n - i, lowest));
          best = here > best ? here : best;
        },
        Kokkos::Max<A>(result));
    return result > lowest ? result : lowest;
  }
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION typename V::value_type total_of_powers(std::size_t n, const T* x,
                                                                     typename V::value_type top) const {
    using A = typename V::value_type;
    return sum(add_up<V>(n, [&](std::size_t i, std::size_t count) {
      const V power = exp(V::load(x + i, count) - V(top));
      return count < V::size ? V::first(power, count, A(0)) : power;
    }));
  }
  /// The maximum and the sum of powers of [0, n), in one pass.
  template <class V, class T>
  KOKKOS_FORCEINLINE_FUNCTION PowerSum<typename V::value_type> powers(std::size_t n, const T* x) const {
    using A = typename V::value_type;
    PowerSum<A> whole;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(*member_, (n + V::size - 1) / V::size),
        [&](std::size_t piece, PowerSum<A>& part) {
          const std::size_t i = piece * V::size, count = n - i < V::size ? n - i : V::size;
          const V here = V::load(x + i, count, Kokkos::Experimental::finite_min_v<A>);
          part.raise(weft::kernels::detail::largest_of(here));
          const V power = exp(here - V(part.top));
          part.total += sum(count < V::size ? V::first(power, count, A(0)) : power);
        },
        Joined<PowerSum<A>>(whole));
    return whole;
  }
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each(std::size_t n, const F& f) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(*member_, n), f);
  }
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A total(std::size_t n, const F& f) const {
    A sum = 0;
    Kokkos::parallel_reduce(Kokkos::ThreadVectorRange(*member_, n), f, sum);
    return sum;
  }
  /// Reduces by f(i, value) for each i of [0, n) into a Value with a `join`.
  template <class Value, class F>
  KOKKOS_FORCEINLINE_FUNCTION Value joined(std::size_t n, const F& f) const {
    Value whole;
    Kokkos::parallel_reduce(Kokkos::ThreadVectorRange(*member_, n), f, Joined<Value>(whole));
    return whole;
  }
  /// The largest of `lowest` and f(i).
  template <class A, class F>
  KOKKOS_FORCEINLINE_FUNCTION A largest(std::size_t n, A lowest, const F& f) const {
    A result = lowest;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(*member_, n),
        [&](std::size_t i, A& best) {
          const A value = f(i);
          best = value > best ? value : best;
        },
        Kokkos::Max<A>(result));
    return result > lowest ? result : lowest;
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
requires(on_host<Exec>) void for_each_row(Device<Exec>& device, Traffic traffic, std::size_t rows, const F& f) {
  for_each(device, traffic, rows, OneThreadBody<F>{f});
}
/// The number of lanes for a row on a GPU: a warp.
inline constexpr std::size_t row_lanes = 32;
template <class Exec, class F>
requires(!on_host<Exec>) void for_each_row(Device<Exec>& device, Traffic traffic, std::size_t rows, const F& f) {
  using Policy = typename RowTeam<Exec>::Policy;
  const int lanes = std::min(int(row_lanes), Policy::vector_length_max()), rows_of_team = lanes == int(row_lanes) ? 4 : 1;
  if (rows != 0)
    weft::detail::launch_kernel<RowTeamBody<Exec, F>>(device, traffic, rows * row_lanes, [&] {
      Kokkos::parallel_for(
          traffic.kind,
          by_argument(Policy(device.exec(), int((rows + std::size_t(rows_of_team) - 1) / std::size_t(rows_of_team)), rows_of_team,
                             lanes)),
          RowTeamBody<Exec, F>{f, rows});
    });
}

/// Calls f(first, count) for runs of [0, n): on hosts of some thousand elements, elsewhere of one.
template <class Exec, class F>
requires(on_host<Exec>) void for_runs(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  constexpr std::size_t run = 4096;
  for_each(device, traffic, (n + run - 1) / run, [=](std::size_t r) { f(r * run, std::min(run, n - r * run)); });
}
template <class Exec, class F>
requires(!on_host<Exec>) void for_runs(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  for_each(
      device, traffic, n, KOKKOS_LAMBDA(std::size_t i) { f(i, std::size_t(1)); });
}
/// Calls f(i, count) for the pieces of [0, n) of the size of V.
template <class V, class Exec, class F>
requires(on_host<Exec>) void for_lanes(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  for_runs(device, traffic, n, [=](std::size_t first, std::size_t count) {
    sweep<V>(count, [&](std::size_t i, std::size_t here) { f(first + i, here); });
  });
}
template <class V, class Exec, class F>
requires(!on_host<Exec>) void for_lanes(Device<Exec>& device, Traffic traffic, std::size_t n, const F& f) {
  for_each(
      device, traffic, (n + V::size - 1) / V::size, KOKKOS_LAMBDA(std::size_t piece) {
        const std::size_t i = piece * V::size;
        f(i, n - i < V::size ? n - i : V::size);
      });
}

/// *out = the sum over [0, n) of f(begin, end), each call on one block of a fixed size, in double: the same bits for any number
/// of threads on hosts.
template <class Exec, class F>
requires(on_host<Exec>) void sum_blocks(Device<Exec>& device, Traffic traffic, std::size_t n, double* out, const F& f) {
  constexpr std::size_t block = 16384;
  const std::size_t blocks = (n + block - 1) / block;
  const weft::detail::Buffer buffer = device.allocate(blocks * sizeof(double));
  double* partial = static_cast<double*>(buffer.get());
  for_each(device, traffic, blocks, [=](std::size_t b) { partial[b] = f(b * block, std::min((b + 1) * block, n)); });
  if (device.rehearsal() != nullptr) return;
  double total = 0;
  for (std::size_t b = 0; b < blocks; ++b) total += partial[b];
  *out = total;
}
template <class Exec, class F>
requires(!on_host<Exec>) void sum_blocks(Device<Exec>& device, Traffic traffic, std::size_t n, double* out, const F& f) {
  constexpr std::size_t block = 8;  // per thread
  Kokkos::View<double, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> result(out);
  const auto body = KOKKOS_LAMBDA(std::size_t b, double& total) {
    total += f(b * block, (b + 1) * block < n ? (b + 1) * block : n);
  };
  weft::detail::launch_kernel<decltype(body)>(device, traffic, (n + block - 1) / block, [&] {
    Kokkos::parallel_reduce(
        traffic.kind,
        by_argument(Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(device.exec(), 0, (n + block - 1) / block)), body,
        result);
  });
}

}  // namespace weft::kernels::detail
