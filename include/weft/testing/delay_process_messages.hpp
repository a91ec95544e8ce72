// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator that wraps one of processes on one machine and delays every message, as delay_messages does for thread ranks: a
// message or collective is complete a given time after the last of its ranks has posted it. The ranks' times travel in messages
// of their own, on the clock that the processes of a machine share.
//
//   auto network = std::make_shared<testing::SlowNetwork>(testing::Transit{.seconds = 5e-3});   // in every process
//   World world(testing::delay_process_messages(real.communicator(), network), real.device());

#include <algorithm>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/comm/group.hpp>
#include <weft/testing/delay_messages.hpp>

namespace weft::testing {

namespace detail {

class StampedGroup final : public DelayingGroup {
 public:
  StampedGroup(std::shared_ptr<comm::Group> inner, std::shared_ptr<DelayedRank> rank)
      : DelayingGroup(inner, std::move(rank)), stamps_(inner->split(0, inner->rank(), "stamps")) {}

  void execute(const comm::Call& call) override {
    if (call.operation != comm::Operation::send) return start(call)->wait();
    stamp(call);
    inner_->execute(call);
  }

  std::unique_ptr<comm::Pending> start(const comm::Call& call) override {
    if (call.operation == comm::Operation::send) {
      stamp(call);
      return inner_->start(call);
    }
    const double seconds = count(call);
    const auto stamp = std::make_shared<Stamp>();
    if (call.operation == comm::Operation::recv) {
      stamp->request = stamps_.recv_async(std::span(&stamp->time, 1), call.root, call.tag);
      return delayed(std::make_unique<Stamped>(inner_->start(call), stamp),
                     [stamp, posted = rank_->clock->now(), seconds] { return std::max(posted, stamp->time) + seconds; });
    }
    stamp->time = rank_->clock->now();
    stamp->request = stamps_.all_reduce_async(std::span(&stamp->time, 1), Reduction::max);
    stamp->seconds = seconds;
    stamp->before = std::exchange(last_, stamp);
    return delayed(std::make_unique<Stamped>(inner_->start(call), stamp), [stamp] { return stamp->end(); });
  }

  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<StampedGroup>(inner_->split(color, key, std::move(axis)), rank_);
  }
  std::shared_ptr<comm::Group> split_placed(int color, int key, std::string axis, const comm::SplitPlace& place) override {
    return std::make_shared<StampedGroup>(inner_->split_placed(color, key, std::move(axis), place), rank_);
  }

 private:
  /// The time at which a message was sent, or at which the last rank posted a collective.
  struct Stamp {
    double time = 0;
    Request request;
    double seconds = 0;             // of a collective
    std::shared_ptr<Stamp> before;  // the collective before, until `time` is the end of this one
    bool ended = false;
    double end() {
      if (std::exchange(ended, true)) return time;
      request.wait();
      if (before) time = std::max(time, before->end());
      before.reset();
      return time += seconds;
    }
  };
  /// A message or collective and its stamp.
  class Stamped final : public comm::Pending {
   public:
    Stamped(std::unique_ptr<comm::Pending> inner, std::shared_ptr<Stamp> stamp)
        : inner_(std::move(inner)), stamp_(std::move(stamp)) {}
    bool test() override {
      if (inner_ && inner_->test()) inner_.reset();
      return stamp_->request.test() && !inner_;
    }
    void wait() override {
      if (inner_) inner_->wait();
      inner_.reset();
      stamp_->request.wait();
    }
    void abandon() noexcept override {
      if (inner_) inner_->abandon();
    }

   private:
    std::unique_ptr<comm::Pending> inner_;
    std::shared_ptr<Stamp> stamp_;
  };
  void stamp(const comm::Call& call) {
    sent_.remove_if([](Stamp& stamp) { return stamp.request.test(); });
    Stamp& stamp = sent_.emplace_back();
    stamp.time = rank_->clock->now();
    stamp.request = stamps_.send_async(std::span<const double>(&stamp.time, 1), call.root, call.tag);
  }

  Communicator stamps_;
  std::list<Stamp> sent_;        // not yet complete
  std::shared_ptr<Stamp> last_;  // collective
};

}  // namespace detail

/// The same ranks over a slow network, whose object belongs to this process. All ranks are processes of one machine and call this
/// together. The given communicator stays unchanged.
inline Communicator delay_process_messages(const Communicator& communicator, std::shared_ptr<SlowNetwork> network,
                                           std::shared_ptr<RankClock> clock = std::make_shared<RankClock>()) {
  auto rank = std::make_shared<detail::DelayedRank>(detail::DelayedRank{std::move(network), std::move(clock)});
  return Communicator(std::make_shared<detail::StampedGroup>(communicator.group(), std::move(rank)), communicator.order());
}

}  // namespace weft::testing
