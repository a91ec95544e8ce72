// SPDX-License-Identifier: Apache-2.0
#pragma once
// The waiting, the workers and the loops of a team. Definitions for device/thread_team.hpp.

#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/core/relax.hpp>
#include <weft/device/thread_team.hpp>

namespace weft::detail {

/// Number of threads in all teams of this process.
inline std::atomic<std::size_t> threads_of_teams{0};
/// True if there is a core for each of them; otherwise none spins.
WEFT_INLINE bool cores_for_all_teams() {
  static const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return threads_of_teams.load(std::memory_order_relaxed) <= cores;
}

/// Moves the calling worker to the place that OpenMP would choose. It inherits the caller's place, which is a single core if the
/// user binds threads (OMP_PROC_BIND).
WEFT_INLINE void take_place([[maybe_unused]] std::size_t thread, [[maybe_unused]] std::size_t threads) {
#if defined(_OPENMP) && defined(__linux__)
  const int places = omp_get_num_places();
  if (omp_get_proc_bind() == omp_proc_bind_false || places == 0) return;
#pragma omp parallel num_threads(1)  // libgomp binds a thread at its first region, which would undo the call below
  {}
  const int place = int(thread * std::size_t(places) / threads);
  std::vector<int> processors(std::size_t(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, processors.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a refused place changes nothing
#endif
}

template <class Condition>
void SpinningCondition::wait(bool spin, const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds longest(50);
  if (condition()) return;
  if (spin) {
    const auto end = Clock::now() + longest;
    do
      for (int turn = 0; turn < 16; ++turn) {
        if (condition()) return;
        relax();
      }
    while (Clock::now() < end);
  }
  ++asleep_;
  for (unsigned calls = calls_; !condition(); calls = calls_) calls_.wait(calls);
  --asleep_;
}

WEFT_INLINE void SpinningCondition::wake() {
  if (asleep_ == 0) return;  // a thread that goes to sleep later sees the condition as true
  ++calls_;
  calls_.notify_all();
}

WEFT_INLINE void ThreadTeam::start(std::size_t threads) {
  process_ = long(getpid());
  threads_of_teams += threads;
  threads_ = threads;
  shares_ = std::make_unique<Share[]>(threads);
  try {
    for (std::size_t worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
  } catch (const std::system_error&) {  // the started threads do the work of the others
  }
}

WEFT_INLINE ThreadTeam::~ThreadTeam() {
  if (!workers_.empty() && process_ != long(getpid())) {  // after a fork there is no thread to join, and a std::thread must not
                                                          // be destroyed unjoined
    static_cast<void>(new std::vector<std::thread>(std::move(workers_)));
    return;
  }
  threads_of_teams -= threads_;
  ended_ = true;
  work_to_do_.wake();
  for (std::thread& worker : workers_) worker.join();
}

WEFT_INLINE void ThreadTeam::run(std::size_t threads, const TeamLoop& loop) {
  if (threads == 1 || loop.pieces <= 1) {
    for (std::size_t piece = 0; piece < loop.pieces; ++piece) loop.call(loop.body, piece, 0);
    return;
  }
  if (threads_ == 0) start(threads);
  loop_ = loop;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    shares_[thread].next.store(loop.pieces * thread / threads, std::memory_order_relaxed);
    shares_[thread].end = loop.pieces * (thread + 1) / threads;
  }
  gate_ += open + one_loop;
  work_to_do_.wake();
  work(0);
  gate_ -= open;
  work_done_.wait(cores_for_all_teams(), [&] { return (gate_ & inside) == 0; });
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

WEFT_INLINE void ThreadTeam::work(std::size_t thread) try {
  for (std::size_t turn = 0; turn < threads_; ++turn) {
    Share& share = shares_[(thread + turn) % threads_];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const std::size_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
      if (piece < share.end) loop_.call(loop_.body, piece, thread);
    }
  }
} catch (...) {
  if (!failed_.exchange(true)) error_ = std::current_exception();
}

WEFT_INLINE void ThreadTeam::serve(std::size_t thread) {
  take_place(thread, threads_);
  for (std::uint64_t served = 0; !ended_;) {
    const auto has_loop = [&](std::uint64_t gate) { return (gate & open) != 0 && gate / one_loop != served; };
    work_to_do_.wait(cores_for_all_teams(), [&] { return has_loop(gate_) || ended_; });
    std::uint64_t gate = gate_;
    while (has_loop(gate) && !gate_.compare_exchange_weak(gate, gate + one_inside)) {}
    if (!has_loop(gate)) continue;
    served = gate / one_loop;
    work(thread);
    gate_ -= one_inside;
    work_done_.wake();
  }
}

}  // namespace weft::detail
