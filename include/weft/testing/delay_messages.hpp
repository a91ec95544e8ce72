// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator that wraps one of thread ranks and delays every message, as a slow network does: the message or collective is
// complete a given time after the last of its ranks has posted it. Ranks compute meanwhile, so a test measures whether a program
// hides its communication.
//
//   auto network = std::make_shared<testing::SlowNetwork>(testing::Transit{.seconds = 5e-3});
//   World world(testing::delay_messages(real.communicator(), network), real.device());    // in every rank's function
//   ...
//   testing::delayed(world.communicator())                                               // messages and seconds in transit
//
// Each rank may have a SimulatedClock. Messages and the rank's own pass(seconds) then take simulated time, so the times of a
// program that computes in no other way are exact on any machine, however busy it is, if it waits by wait(): test() does not move
// a simulated clock, and depends on when the machine delivers a message.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/group.hpp>
#include <weft/testing/forwarding_group.hpp>

namespace weft::testing {

/// Time of one message or collective, once all its ranks have posted it: `seconds` and, for each byte of its buffer,
/// `seconds_per_byte`. Collectives of one communicator follow each other; messages do not wait for other messages.
struct Transit {
  double seconds = 0, seconds_per_byte = 0;
  bool collectives = true;  ///< false: collectives take no time
};

/// Messages that one rank has received, collectives in which it took part, and the sum of their times in transit.
struct DelayCounts {
  std::uint64_t messages = 0;
  double seconds = 0;
};

/// The clock of one rank. This one is the machine's.
class RankClock {
 public:
  virtual ~RankClock() = default;
  /// Seconds since a moment that is the same for all ranks.
  virtual double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  /// The rank does nothing for `seconds`, as if it computed.
  virtual void pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  /// Returns at the time `end` at the earliest. advance() moves the rank's other messages on meanwhile.
  virtual void wait_until(double end, const std::function<void()>& advance) {
    for (double left = end - now(); left > 0; left = end - now()) {
      advance();
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 1e-4)));
    }
  }
};

/// A clock that stands still while a rank computes; only pass() and waits for messages move it.
class SimulatedClock : public RankClock {
 public:
  double now() const override { return now_; }
  void pass(double seconds) override { now_ += seconds; }
  void wait_until(double end, const std::function<void()>&) override { now_ = std::max(now_, end); }

 private:
  double now_ = 0;
};

/// The times of all messages: one object for all thread ranks of a program.
class SlowNetwork {
 public:
  explicit SlowNetwork(Transit transit = {}) { set(transit); }

  /// Changes the times of later messages. To be called while no message is under way.
  void set(Transit transit) {
    seconds_ = transit.seconds;
    per_byte_ = transit.seconds_per_byte;
    delays_collectives_ = transit.collectives;
  }

  static double now() { return RankClock().now(); }  ///< of the machine
  double seconds_of(const comm::Call& call) const {
    if (call.operation != comm::Operation::recv && !delays_collectives_) return 0;
    return seconds_ + double(call.bytes()) * per_byte_;
  }

  /// Sender, receiver and tag in the communicator of that identity. The n-th send of a channel meets its n-th receive.
  using Channel = std::tuple<std::uint64_t, int, int, int>;
  void sent(const Channel& channel, double time) {
    const std::lock_guard lock(mutex_);
    sent_[channel].push_back(time);
  }
  /// The time at which the oldest message of the channel was sent, which its receiver has now taken.
  double take(const Channel& channel) {
    const std::lock_guard lock(mutex_);
    std::deque<double>& times = sent_[channel];
    const double time = times.front();
    times.pop_front();
    return time;
  }

  /// A rank posts the next collective of the communicator at `time`. It takes `seconds` once all ranks have posted it.
  void post(std::uint64_t identity, std::size_t number, double time, double seconds) {
    const std::lock_guard lock(mutex_);
    std::vector<Collective>& all = collectives_[identity];
    if (all.size() <= number) all.resize(number + 1);
    all[number].posted = std::max(all[number].posted, time);
    all[number].seconds = seconds;
  }
  /// The time at which the collective is complete. All its ranks have posted it.
  double end_of(std::uint64_t identity, std::size_t number) {
    const std::lock_guard lock(mutex_);
    std::vector<Collective>& all = collectives_[identity];
    std::size_t first = number + 1;
    while (first > 0 && all[first - 1].end < 0) --first;
    for (std::size_t i = first; i <= number; ++i)
      all[i].end = std::max(all[i].posted, i > 0 ? all[i - 1].end : 0) + all[i].seconds;
    return all[number].end;
  }

 private:
  struct Collective {
    double posted = 0, seconds = 0, end = -1;
  };
  std::atomic<double> seconds_, per_byte_;
  std::atomic<bool> delays_collectives_;
  std::mutex mutex_;
  std::map<Channel, std::deque<double>> sent_;
  std::map<std::uint64_t, std::vector<Collective>> collectives_;
};

namespace detail {

class DelayedRequest;

/// The requests of one rank that are not complete. A wait for one advances the others.
struct DelayedRank {
  std::shared_ptr<SlowNetwork> network;
  std::shared_ptr<RankClock> clock;
  std::vector<DelayedRequest*> requests = {};
  DelayCounts counts = {};
};

class DelayedRequest final : public comm::Pending {
 public:
  /// `due`: the time of completion, called when the inner operation is complete.
  DelayedRequest(std::shared_ptr<DelayedRank> rank, std::unique_ptr<comm::Pending> inner, std::function<double()> due)
      : rank_(std::move(rank)), inner_(std::move(inner)), due_(std::move(due)) {
    rank_->requests.push_back(this);
  }
  DelayedRequest(const DelayedRequest&) = delete;
  DelayedRequest& operator=(const DelayedRequest&) = delete;
  ~DelayedRequest() override { std::erase(rank_->requests, this); }

  bool test() override {
    if (!advance()) return false;
    return rank_->clock->now() >= time_;
  }
  void wait() override {
    if (!advance() && inner_) inner_->wait();
    inner_.reset();
    advance();
    rank_->clock->wait_until(time_, [this] {
      for (std::size_t i = 0; i < rank_->requests.size(); ++i) rank_->requests[i]->advance();
    });
  }
  void abandon() noexcept override {
    if (inner_) inner_->abandon();
  }

 private:
  // True once the inner operation is complete and the time of this one is set.
  bool advance() {
    if (time_ >= 0) return true;
    if (inner_ && !inner_->test()) return false;
    inner_.reset();
    time_ = due_();
    return true;
  }

  std::shared_ptr<DelayedRank> rank_;
  std::unique_ptr<comm::Pending> inner_;
  std::function<double()> due_;
  double time_ = -1;
};

/// The base of groups whose receives are complete later than those of the group inside.
class DelayingGroup : public ForwardingGroup {
 public:
  DelayingGroup(std::shared_ptr<comm::Group> inner, std::shared_ptr<DelayedRank> rank)
      : ForwardingGroup(std::move(inner)), rank_(std::move(rank)) {}
  const DelayCounts& counts() const { return rank_->counts; }

 protected:
  /// Counts a call; the seconds that it is in transit.
  double count(const comm::Call& call) {
    const double seconds = rank_->network->seconds_of(call);
    ++rank_->counts.messages;
    rank_->counts.seconds += seconds;
    return seconds;
  }
  std::unique_ptr<comm::Pending> delayed(std::unique_ptr<comm::Pending> started, std::function<double()> due) {
    return std::make_unique<DelayedRequest>(rank_, std::move(started), std::move(due));
  }

  std::shared_ptr<DelayedRank> rank_;
};

class DelayedGroup final : public DelayingGroup {
 public:
  DelayedGroup(std::shared_ptr<comm::Group> inner, std::shared_ptr<DelayedRank> rank, std::uint64_t identity)
      : DelayingGroup(std::move(inner), std::move(rank)), identity_(identity) {}

  void execute(const comm::Call& call) override {
    if (call.operation == comm::Operation::send) {
      sent(call);
      return inner_->execute(call);
    }
    start(call)->wait();
  }

  std::unique_ptr<comm::Pending> start(const comm::Call& call) override {
    if (call.operation == comm::Operation::send) {
      sent(call);
      return inner_->start(call);
    }
    SlowNetwork& network = *rank_->network;
    const double seconds = count(call);
    if (call.operation == comm::Operation::recv) {
      const double posted = rank_->clock->now();
      return delayed(inner_->start(call), [&network, posted, seconds, channel = channel(call.root, rank(), call.tag)] {
        return std::max(posted, network.take(channel)) + seconds;
      });
    }
    network.post(identity_, number_, rank_->clock->now(), seconds);
    return delayed(inner_->start(call),
                   [&network, identity = identity_, number = number_++] { return network.end_of(identity, number); });
  }

  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    const std::uint64_t identity = identity_of_split(color, axis);
    return std::make_shared<DelayedGroup>(inner_->split(color, key, std::move(axis)), rank_, identity);
  }
  std::shared_ptr<comm::Group> split_placed(int color, int key, std::string axis, const comm::SplitPlace& place) override {
    const std::uint64_t identity = identity_of_split(color, axis);
    return std::make_shared<DelayedGroup>(inner_->split_placed(color, key, std::move(axis), place), rank_, identity);
  }

 private:
  SlowNetwork::Channel channel(int from, int to, int tag) const { return {identity_, from, to, tag}; }
  void sent(const comm::Call& call) { rank_->network->sent(channel(rank(), call.root, call.tag), rank_->clock->now()); }
  // The same number on all ranks of the new group, and no other group's.
  std::uint64_t identity_of_split(int color, const std::string& axis) {
    std::uint64_t identity = identity_;
    for (const std::uint64_t part : {std::uint64_t(color) + 1, std::uint64_t(std::hash<std::string>()(axis)), ++splits_})
      identity = (identity ^ part) * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
    return identity;
  }

  std::uint64_t identity_, splits_ = 0;
  std::size_t number_ = 0;  // of the next collective
};

}  // namespace detail

/// The same ranks over a slow network. All ranks give the same network and are threads of this process; each has a clock of its
/// own. The given communicator stays unchanged.
inline Communicator delay_messages(const Communicator& communicator, std::shared_ptr<SlowNetwork> network,
                                   std::shared_ptr<RankClock> clock = std::make_shared<RankClock>()) {
  auto rank = std::make_shared<detail::DelayedRank>(detail::DelayedRank{std::move(network), std::move(clock)});
  return Communicator(std::make_shared<detail::DelayedGroup>(communicator.group(), std::move(rank), 0), communicator.order());
}

/// The counts of this rank so far, of a communicator made by delay_messages or delay_process_messages or split from one; zeros
/// for any other.
inline DelayCounts delayed(const Communicator& communicator) {
  const auto* group = dynamic_cast<const detail::DelayingGroup*>(communicator.group().get());
  return group == nullptr ? DelayCounts{} : group->counts();
}

}  // namespace weft::testing
