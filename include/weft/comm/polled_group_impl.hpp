// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/polled_group.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdio>
#include <exception>

#include <weft/comm/polled_group.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

class PolledGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<PolledGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  bool test() override {
    if (!running_->complete) {
      group_->expect_usable(*running_);
      group_->process_->progress();
    }
    if (running_->complete) group_->expect_whole(*running_);
    return running_->complete;
  }
  void wait() override { group_->wait(*running_); }
  void abandon() noexcept override {
    if (running_->complete || running_->given_up) return;
    if (std::uncaught_exceptions() == 0) {
      try {
        return wait();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    }
    group_->give_up(*running_);
  }

 private:
  std::shared_ptr<PolledGroup> group_;
  std::shared_ptr<Running> running_;
};

WEFT_INLINE void PolledGroup::add(std::shared_ptr<Running> running, const ProcessGroup::Running& begun) {
  running->sequence = begun.sequence;
  running->number = begun.number;
  running->step = begun.step;
  under_way_.push_back(std::move(running));
  count(1);
}

WEFT_INLINE std::unique_ptr<Pending> PolledGroup::start(const Call& call) {
  ProcessGroup::Running begun{.call = &call};
  begin(begun);
  std::shared_ptr<Running> running = make(call, begun.step);
  add(running, begun);
  try {
    launch(*running);
  } catch (...) {
    give_up(*running);
    throw;
  }
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

WEFT_INLINE void PolledGroup::progress() {
  bool earlier_waits = false, ended = false;  // collectives are launched in one order on all ranks
  for (const auto& running : under_way_) {
    const bool message = is_point_to_point(running->call->operation);
    if (!running->complete && (running->launched || message || !earlier_waits) && advance(*running)) complete(*running);
    earlier_waits |= !running->launched;
    ended |= running->complete;
  }
  if (ended) count(-long(std::erase_if(under_way_, [](const auto& running) { return running->complete; })));
}

WEFT_INLINE void PolledGroup::wait(Running& running) {
  if (running.given_up) throw_aborted(running, "it has failed before");
  try {
    if (!running.complete) expect_usable(running);
    for (int turn = 0, most = spins(); !running.complete && turn < most; ++turn) process_->progress();
    WaitTimes times;
    auto looked = times.start;
    for (auto now = looked; !running.complete; now = Clock::now()) {
      if (now - looked > std::chrono::milliseconds(1)) {
        looked = now;
        check_wait(running, times);
      }
      pause(running, now - times.start);
      process_->progress();
    }
  } catch (...) {  // no failed operation touches a buffer any more
    give_up(running);
    throw;
  }
  expect_whole(running);
}

WEFT_INLINE void PolledGroup::give_up(Running& running) {
  const auto at = std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& other) { return other.get() == &running; });
  if (at == under_way_.end()) return;
  running.given_up = true;
  auto kept = std::move(*at);
  under_way_.erase(at);
  count(-1);
  take_back(std::move(kept));
}

}  // namespace weft::comm
