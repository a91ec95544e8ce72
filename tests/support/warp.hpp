// SPDX-License-Identifier: Apache-2.0
#pragma once
// A warp on the host: 32 lanes that run one after the other, in a new random order between the points where all of them meet.
// Kokkos' teams on hosts have one lane, which does all the work, so a value that one lane writes and another reads too early is
// always correct there. Here it is wrong in most orders. A lane that does not arrive at a meeting point is an error, too: on a
// GPU the others would wait for ever.
//
// A program that includes this before any kernel, and declares its space not to be a host, runs the kernels' rows in this way.
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <weft/kernels/detail/lanes.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft_test {

class Warp {
 public:
  static constexpr int lanes = 32;

  /// The warp of the calling thread.
  static Warp& mine() {
    thread_local Warp warp;
    return warp;
  }
  /// Errors found so far in warps of all threads.
  static std::vector<std::string> errors() {
    const std::lock_guard lock(mutex());
    return all_errors();
  }
  static void forget_errors() {
    const std::lock_guard lock(mutex());
    all_errors().clear();
  }

  /// Runs f(warp, lane) in all lanes, in orders that depend only on `seed`.
  template <class F>
  void run(std::size_t seed, const F& f) {
    body_ = [](const void* object, Warp& warp, int lane) { (*static_cast<const F*>(object))(warp, lane); };
    object_ = &f;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::array<int, lanes> order;
    std::iota(order.begin(), order.end(), 0);
    for (int lane = 0; lane < lanes; ++lane) {
      getcontext(&contexts_[lane]);
      contexts_[lane].uc_stack.ss_sp = stacks_[lane].get();
      contexts_[lane].uc_stack.ss_size = stack_bytes;
      contexts_[lane].uc_link = &scheduler_;
      makecontext(&contexts_[lane], &Warp::enter, 0);
    }
    for (;;) {
      std::shuffle(order.begin(), order.end(), random);
      for (const int lane : order) {
        current_ = lane;
        place_[lane] = nullptr;
        swapcontext(&scheduler_, &contexts_[lane]);
      }
      for (int lane = 1; lane < lanes; ++lane)
        if (place_[lane] != place_[0]) return report(lane);
      if (place_[0] == nullptr) return;
    }
  }
  /// Returns when all lanes have arrived. `place` identifies the point: one literal per point.
  void meet(const char* place) {
    place_[current_] = place;
    swapcontext(&contexts_[current_], &scheduler_);
  }
  /// All lanes' values, joined in the order of the lanes: the same in each.
  template <class Value, class Join>
  Value reduce(const Value& mine, const Join& join) {
    static_assert(sizeof(Value) <= sizeof(Slot) && std::is_trivially_copyable_v<Value>);
    std::memcpy(&slots_[current_], &mine, sizeof mine);
    meet("a sum");
    Value whole, next;
    std::memcpy(static_cast<void*>(&whole), &slots_[0], sizeof whole);
    for (int lane = 1; lane < lanes; ++lane) {
      std::memcpy(static_cast<void*>(&next), &slots_[lane], sizeof next);
      join(whole, next);
    }
    meet("the end of a sum");
    return whole;
  }

 private:
  using Slot = std::array<std::byte, 1024>;
  static constexpr std::size_t stack_bytes = std::size_t(64) << 10;

  Warp() {
    for (auto& stack : stacks_) stack = std::make_unique<std::byte[]>(stack_bytes);
  }
  static void enter() {
    Warp& warp = mine();
    warp.body_(warp.object_, warp, warp.current_);
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::vector<std::string>& all_errors() {
    static std::vector<std::string> errors;
    return errors;
  }
  void report(int lane) const {
    const auto where = [](const char* place) { return place == nullptr ? "has ended" : std::string("waits at ") + place; };
    const std::lock_guard lock(mutex());
    all_errors().push_back("lane 0 " + where(place_[0]) + ", and lane " + std::to_string(lane) + " " + where(place_[lane]));
  }

  ucontext_t scheduler_ = {};
  std::array<ucontext_t, lanes> contexts_ = {};
  std::array<std::unique_ptr<std::byte[]>, lanes> stacks_;
  std::array<const char*, lanes> place_ = {};  // where a lane waits; null: it has ended
  std::array<Slot, lanes> slots_ = {};
  int current_ = 0;
  void (*body_)(const void*, Warp&, int) = nullptr;
  const void* object_ = nullptr;
};

}  // namespace weft_test

namespace weft::kernels::detail {

/// Like Kokkos' lanes of a warp: all of them meet at the end of each member.
template <>
class RowTeam<Kokkos::DefaultExecutionSpace> {
 public:
  using Policy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>;
  using Member = typename Policy::member_type;
  RowTeam(weft_test::Warp& warp, int lane) : warp_(&warp), lane_(std::size_t(lane)) {}

  template <class V, class F>
  void sweep(std::size_t n, const F& f) const {
    pieces<V>(n, f);
    warp_->meet("the end of a sweep");
  }
  template <class V, class F>
  auto add_up(std::size_t n, const F& f) const {
    using Sum = decltype(f(n, n));
    using A = typename V::value_type;
    if constexpr (requires(Sum s) { s.second; }) {
      TwoSums<A> sums;
      pieces<V>(n, [&](std::size_t i, std::size_t count) {
        const Sum both = f(i, count);
        sums.first += sum(both.first), sums.second += sum(both.second);
      });
      sums = joined_over_lanes(sums);
      return Sum(V::first(V(sums.first), 1, A(0)), V::first(V(sums.second), 1, A(0)));
    } else {
      A total = 0;
      pieces<V>(n, [&](std::size_t i, std::size_t count) { total += sum(f(i, count)); });
      return Sum(V::first(V(added(total)), 1, A(0)));
    }
  }
  template <class V, class T>
  typename V::value_type maximum(std::size_t n, const T* x, typename V::value_type lowest) const {
    return largest(n, lowest, [&](std::size_t i) { return typename V::value_type(x[i]); });
  }
  template <class V, class T>
  typename V::value_type total_of_powers(std::size_t n, const T* x, typename V::value_type top) const {
    using A = typename V::value_type;
    return total<A>(n, [&](std::size_t i, A& sum) { sum += Kokkos::exp(A(x[i]) - top); });
  }
  template <class V, class T>
  PowerSum<typename V::value_type> powers(std::size_t n, const T* x) const {
    using A = typename V::value_type;
    PowerSum<A> part;
    for (std::size_t i = lane_; i < n; i += std::size_t(weft_test::Warp::lanes)) {
      part.raise(A(x[i]));
      part.total += Kokkos::exp(A(x[i]) - part.top);
    }
    return joined_over_lanes(part);
  }
  template <class F>
  void each(std::size_t n, const F& f) const {
    for (std::size_t i = lane_; i < n; i += std::size_t(weft_test::Warp::lanes)) f(i);
    warp_->meet("the end of a loop");
  }
  template <class A, class F>
  A total(std::size_t n, const F& f) const {
    A sum = 0;
    for (std::size_t i = lane_; i < n; i += std::size_t(weft_test::Warp::lanes)) f(i, sum);
    return added(sum);
  }
  template <class Value, class F>
  Value joined(std::size_t n, const F& f) const {
    Value mine;
    for (std::size_t i = lane_; i < n; i += std::size_t(weft_test::Warp::lanes)) f(i, mine);
    return joined_over_lanes(mine);
  }
  template <class A, class F>
  A largest(std::size_t n, A lowest, const F& f) const {
    A best = lowest;
    for (std::size_t i = lane_; i < n; i += std::size_t(weft_test::Warp::lanes)) best = std::max(best, A(f(i)));
    return warp_->reduce(best, [](A& a, A b) { a = std::max(a, b); });
  }
  template <class A, class F>
  A same(const F& f) const {
    A value = 0;
    if (lane_ == 0) value = f();
    return warp_->reduce(value, [](A&, A) {});
  }
  bool leads() const {
    warp_->meet("a choice of the leader");
    return lane_ == 0;
  }

 private:
  template <class V, class F>
  void pieces(std::size_t n, const F& f) const {
    for (std::size_t i = lane_ * V::size; i < n; i += std::size_t(weft_test::Warp::lanes) * V::size)
      f(i, std::min<std::size_t>(n - i, V::size));
  }
  template <class A>
  A added(A mine) const {
    return warp_->reduce(mine, [](A& a, A b) { a += b; });
  }
  template <class Value>
  Value joined_over_lanes(const Value& mine) const {
    return warp_->reduce(mine, [](Value& a, const Value& b) { a.join(b); });
  }

  weft_test::Warp* warp_;
  std::size_t lane_;
};

template <class F>
struct RowTeamBody<Kokkos::DefaultExecutionSpace, F> {
  F f;
  std::size_t rows;
  void operator()(const typename RowTeam<Kokkos::DefaultExecutionSpace>::Member& member) const {
    const std::size_t row = std::size_t(member.league_rank()) * std::size_t(member.team_size()) + std::size_t(member.team_rank());
    if (row < rows)
      weft_test::Warp::mine().run(
          row, [&](weft_test::Warp& warp, int lane) { f(row, RowTeam<Kokkos::DefaultExecutionSpace>(warp, lane)); });
  }
};

}  // namespace weft::kernels::detail
