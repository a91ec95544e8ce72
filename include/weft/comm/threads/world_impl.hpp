// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/threads/world.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/threads/world.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

WEFT_COLD WEFT_INLINE void World::fail(int rank, const std::string& text, bool mismatch) {
  {
    std::lock_guard lock(failure_mutex_);
    if (failure_.rank < 0) failure_ = {rank, mismatch, text};
    else if (failure_.rank == rank && failure_.text.empty()) failure_.text = text;  // it left before its text was set
  }
  failed_.store(true, std::memory_order_seq_cst);
  for (int r = 0; r < size(); ++r) wake(r, true);
}

WEFT_INLINE void World::quiesce(int self) {
  for (int r = 0; r < size(); ++r)
    while (r != self && rank(r).touching.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

WEFT_INLINE void World::wake(int r, bool always) {
  Rank& sleeper = rank(r);
  WEFT_PAUSE();
  if (!always && sleeper.asleep.load(std::memory_order_seq_cst) == 0) return;
  std::lock_guard lock(sleeper.mutex);
  sleeper.woken = true;
  sleeper.wake.notify_one();
}

WEFT_INLINE bool World::advance_all(Rank& self) {
  bool any = false;
  for (Advancing *operation = self.under_way.first(), *next = nullptr; operation != nullptr; operation = next) {
    next = operation->next;
    any |= operation->advance();
    if (operation->complete()) self.under_way.remove(*operation);
  }
  return any;
}

WEFT_INLINE World::Outcome World::wait(int r, Advancing& operation) {
  Rank& self = rank(r);
  for (unsigned turn = 0; turn < spins_ + yields_; ++turn) {
    operation.advance();
    if (operation.complete()) return Outcome::done;
    if (self.under_way.first() != nullptr) advance_all(self);
    if (failed()) return last_chance(operation);
    if (turn < spins_) weft::detail::relax();
    else std::this_thread::yield();
  }
  const auto start = Clock::now();
  self.advances.fetch_add(1, std::memory_order_relaxed);  // whatever this rank did before is no part of this wait
  self.state.store(Rank::State::waiting, std::memory_order_release);
  Outcome outcome = Outcome::done;
  for (unsigned turn = 0;; ++turn) {
    if (turn != 0) self.asleep.exchange(1, std::memory_order_seq_cst);
    const std::uint64_t wave = census_.wave();
    WEFT_PAUSE();
    bool any = operation.advance();
    if (self.under_way.first() != nullptr && advance_all(self)) any = true;
    if (operation.complete()) break;
    if (failed()) {
      outcome = last_chance(operation);
      break;
    }
    if (any) continue;
    WEFT_PAUSE();
    if (turn == 0) continue;  // once more, now that others see it asleep
    {
      std::unique_lock lock(self.mutex);
      self.wake.wait_for(lock, poll_interval, [&] { return self.woken; });
      self.woken = false;
    }
    self.asleep.store(0, std::memory_order_relaxed);
    const auto waited = Clock::now() - start;
    if (waited > deadline_) {
      outcome = Outcome::timed_out;
      break;
    }
    if (comm::detail::wait_must_end(start)) {
      outcome = Outcome::interrupted;
      break;
    }
    if (census_.report(r, wave, self.advances.load(std::memory_order_relaxed))) {
      outcome = Outcome::stuck;
      break;
    }
  }
  self.asleep.store(0, std::memory_order_relaxed);
  WEFT_PAUSE();
  if (outcome == Outcome::done) self.state.store(Rank::State::running, std::memory_order_release);
  return outcome;  // else it still shows as waiting, for the message that follows
}

WEFT_INLINE void World::end(int r) {
  rank(r).state.store(Rank::State::ended, std::memory_order_release);
  census_.end(r);
  for (int other = 0; other < size(); ++other)
    if (other != r) wake(other);
}

WEFT_COLD WEFT_INLINE std::string World::positions() {
  std::string text;
  for (int r = 0; r < size(); ++r) {
    const auto state = rank(r).state.load(std::memory_order_acquire);
    const auto function = state == Rank::State::ended ? ProgramFunction::none : rank(r).recorder.function();
    weft::detail::append_to(text, {r == 0 ? "rank " : "; rank ", r, function == ProgramFunction::none ? "" : " in ",
                                   function == ProgramFunction::none ? "" : name_of(function),
                                   state == Rank::State::ended     ? " has ended, last: "
                                   : state == Rank::State::waiting ? " waits, last: "
                                                                   : " is not waiting, last: ",
                                   rank(r).recorder.text(3)});
  }
  return text;
}

}  // namespace weft::comm::threads
