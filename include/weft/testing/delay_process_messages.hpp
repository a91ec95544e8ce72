// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator that wraps one of processes on one machine and delays every message between two ranks, as delay_messages does
// for thread ranks: the message is complete a given time after both ranks have posted it. The sender's time travels in a message
// of its own, on the clock that the processes of a machine share. Collectives are not delayed.
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
    if (call.operation == comm::Operation::recv) return start(call)->wait();
    if (call.operation == comm::Operation::send) stamp(call);
    inner_->execute(call);
  }

  std::unique_ptr<comm::Pending> start(const comm::Call& call) override {
    if (call.operation == comm::Operation::send) stamp(call);
    if (call.operation != comm::Operation::recv) return inner_->start(call);
    const auto sent = std::make_shared<Stamp>();
    sent->request = stamps_.recv_async(std::span(&sent->time, 1), call.root, call.tag);
    return delayed(call, [sent, posted = SlowNetwork::now(), seconds = count(call)] {
      sent->request.wait();  // it was sent before the message
      return std::max(posted, sent->time) + seconds;
    });
  }

  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<StampedGroup>(inner_->split(color, key, std::move(axis)), rank_);
  }
  std::shared_ptr<comm::Group> split_placed(int color, int key, std::string axis, const comm::SplitPlace& place) override {
    return std::make_shared<StampedGroup>(inner_->split_placed(color, key, std::move(axis), place), rank_);
  }

 private:
  struct Stamp {
    double time = 0;
    Request request;
  };
  void stamp(const comm::Call& call) {
    sent_.remove_if([](Stamp& stamp) { return stamp.request.test(); });
    Stamp& stamp = sent_.emplace_back();
    stamp.time = SlowNetwork::now();
    stamp.request = stamps_.send_async(std::span<const double>(&stamp.time, 1), call.root, call.tag);
  }

  Communicator stamps_;
  std::list<Stamp> sent_;  // not yet complete
};

}  // namespace detail

/// The same ranks over a slow network, whose object belongs to this process. All ranks are processes of one machine and call this
/// together. The given communicator stays unchanged.
inline Communicator delay_process_messages(const Communicator& communicator, std::shared_ptr<SlowNetwork> network) {
  auto rank = std::make_shared<detail::DelayedRank>();
  rank->network = std::move(network);
  return Communicator(std::make_shared<detail::StampedGroup>(communicator.group(), std::move(rank)), communicator.order());
}

}  // namespace weft::testing
