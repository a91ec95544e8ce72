// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of processes connected by a mesh, whose thread moves messages at any time; the later steps of an operation run inside
// any wait or test of this rank. Every wait has a deadline and notices a lost rank.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/stop.hpp>
#include <weft/comm/tcp/process.hpp>
#include <weft/comm/tcp/transfer.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::tcp {

class TcpGroup final : public Group, public Progress, public std::enable_shared_from_this<TcpGroup> {
 public:
  /// `members`: the ranks of the world in the order of the group, this rank among them.
  TcpGroup(std::shared_ptr<Process> process, std::uint64_t number, std::vector<int> members, std::string axis)
      : process_(std::move(process)), number_(number), members_(std::move(members)), axis_(std::move(axis)) {
    rank_ = int(std::find(members_.begin(), members_.end(), process_->rank) - members_.begin());
    ledger_ = process_->watch->open(2 * number_, axis_);
    flight_ = process_->recorder.open(axis_, members_, ledger_->channel());
    process_->groups.push_back(this);
  }
  TcpGroup(const TcpGroup&) = delete;
  TcpGroup& operator=(const TcpGroup&) = delete;
  ~TcpGroup() override {
    count(-long(under_way_.size()));
    std::erase(process_->groups, this);
  }

  int rank() const override { return rank_; }
  int size() const override { return int(members_.size()); }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return "tcp"; }
  bool supports(Operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host; }

  Flight flight() override { return {&process_->recorder, flight_.get()}; }

  void execute(const Call& call) override {
    if (auto pending = start(call)) pending->wait();
  }
  std::unique_ptr<Pending> start(const Call& call) override;
  std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  void end() override {
    Group::end();
    if (const std::string why = process_->watch->unreceived(*this); !why.empty())
      throw MismatchError(process_->rank, axis(), "the end of the program", sequence_, why);
  }
  void progress() override {
    bool ended = false;
    for (const auto& running : under_way_) {
      if (!running->complete && guarded(*running, [&] { return running->transfer.test(); })) {
        running->complete = ended = true;
        process_->recorder.complete(running->number);
      }
      if (running->transfer.mismatch() != nullptr) refuse(*running);
    }
    if (ended) count(-long(std::erase_if(under_way_, [](const auto& running) { return running->complete; })));
  }

 private:
  class Started;

  /// An operation from start to end.
  struct Running {
    Running(const Place& place, const Call& call, std::uint64_t collective, bool check, std::uint64_t s, std::uint64_t n)
        : transfer(place, call, collective, check), sequence(s), number(n) {}
    Transfer transfer;
    std::uint64_t sequence, number, step = 0;  // the last one: its number among the collectives, or messages, of its kind
    std::unique_ptr<Watch::Wait> long_wait;
    bool complete = false;
  };

  void count(long operations) {
    process_->under_way += std::size_t(operations);
    process_->polled += std::size_t(operations);
  }
  /// Runs f; the error of a connection gets the name of the operation and of the lost rank.
  template <class F>
  bool guarded(const Running& running, F&& f) {
    try {
      return f();
    } catch (const Broken& error) {
      process_->lost();
      throw_lost(running, error.what());
    }
  }
  [[noreturn]] WEFT_COLD void throw_lost(const Running& running, const std::string& otherwise) {
    // Each buffer of a broken connection hears of it in turn: whose it is shows in a moment.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    int q = process_->lost();
    for (; q < 0 && std::chrono::steady_clock::now() < end; q = process_->lost())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (q < 0) q = process_->ended();  // all that one has heard of it is that it failed because of another
    throw AbortedError(process_->rank, axis_, describe(running.transfer.call()), running.sequence,
                       q >= 0 ? process_->fate(q) : otherwise);
  }
  [[noreturn]] WEFT_COLD void refuse(const Running& running) {
    const Incoming& message = *running.transfer.mismatch();
    const Head found = message.head();
    const Call& call = running.transfer.call();
    const auto in_group = std::find(members_.begin(), members_.end(), message.peer()) - members_.begin();
    const std::string peer = weft::detail::joined({"rank ", long(in_group), " of ", axis_});
    const std::string functions =
        functions_of(peer, found.signature, weft::detail::joined({"rank ", rank_, " of ", axis_}), message.expected().signature);
    std::string why;
    if (is_point_to_point(call.operation))
      why = weft::detail::joined({peer, " sent ", found.count, " ", name_of(DataType(found.signature >> 8 & 0xff)), ", ",
                                  call.count, " ", name_of(call.type), " were expected", functions});
    else
      why = weft::detail::joined({"ranks disagree: ", peer, " called ", describe(found.signature, found.count), " with ",
                                  found.bytes, " bytes for rank ", rank_, ", which called ", describe(call), " and expects ",
                                  message.expected().bytes, functions});
    process_->watch->accuse(ledger_->channel(),
                            weft::detail::joined({"rank ", process_->rank, ", ", describe(call), " on ", axis_, ": ", why}));
    throw MismatchError(process_->rank, axis_, describe(call), running.sequence, why);
  }
  /// A turn of a wait that is long already: throws if it can never end.
  WEFT_COLD void look(Running& running) {
    const Call& call = running.transfer.call();
    if (!running.long_wait) {
      running.long_wait = std::make_unique<Watch::Wait>(*ledger_, call, running.step, process_->recorder.text(2));
      Watch::Wait& wait = *running.long_wait;
      wait.on = running.transfer.missing();
      // The root takes long data once the envelopes of all ranks have come: who sends it waits for all of them.
      const bool to_root = call.operation == Operation::gather || call.operation == Operation::reduce;
      if (to_root && call.root != rank_ && call.bytes() > eager) {
        wait.on = members_;
        std::erase(wait.on, process_->rank);
      }
    }
    if (const std::string why = process_->watch->look(*running.long_wait); !why.empty())
      throw MismatchError(process_->rank, axis_, describe(call), running.sequence, why);
  }
  void wait(Running& running);
  void give_up(Running& running) {
    running.transfer.drop();
    const auto at =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& other) { return other.get() == &running; });
    if (at == under_way_.end()) return;
    process_->given_up.push_back(*at);
    under_way_.erase(at);
    count(-1);
  }

  std::shared_ptr<Process> process_;
  std::uint64_t number_;
  std::vector<int> members_;
  std::string axis_;
  int rank_ = 0;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<FlightRecorder::Line> flight_;
  std::vector<std::shared_ptr<Running>> under_way_;
};

class TcpGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<TcpGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  bool test() override {
    if (!running_->complete) group_->process_->progress();
    return running_->complete;
  }
  void wait() override { group_->wait(*running_); }
  void abandon() noexcept override {
    if (running_->complete) return;
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
  std::shared_ptr<TcpGroup> group_;
  std::shared_ptr<Running> running_;
};

inline std::unique_ptr<Pending> TcpGroup::start(const Call& call) {
  call.order.fence();
  if (call.tag < 0) throw_error<UsageError>({name_of(call.operation), ": tag ", call.tag, " is negative"});
  ++sequence_;
  comm::detail::expect_no_stop(process_->rank, axis_, call, sequence_);
  // Messages differ between ranks, collectives do not.
  const bool message = is_point_to_point(call.operation);
  const std::uint64_t step = message ? ledger_->message(call.operation == Operation::send, members_[std::size_t(call.root)], call)
                                     : ledger_->collective(call);
  const std::uint64_t collective = message ? 0 : step;
  process_->watch->tidy();
  const std::uint64_t number = process_->recorder.begin(*flight_, sequence_, call);
  auto running = std::make_shared<Running>(Place{process_->mesh.get(), number_, &members_, rank_, size()}, call, collective,
                                           process_->fingerprints, sequence_, number);
  running->step = step;
  guarded(*running, [&] {
    if (process_->disturbed()) [[unlikely]]
      throw_lost(*running, "a connection has delivered bytes that are no valid frame");
    running->transfer.launch();
    return true;
  });
  under_way_.push_back(running);
  count(1);
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

inline void TcpGroup::wait(Running& running) {
  using Clock = std::chrono::steady_clock;
  try {
    process_->progress();
    const auto start = Clock::now();
    auto looked = start, noticed = start;
    while (!running.complete) {
      guarded(running, [&] {
        // What goes through shared memory advances only here.
        running.transfer.wait(std::chrono::microseconds(process_->under_way > process_->polled ? 50 : 1000));
        return true;
      });
      process_->progress();
      const auto now = Clock::now();
      if (running.complete || now - looked < std::chrono::milliseconds(1)) continue;
      looked = now;
      if (process_->lost() < 0) noticed = now;
      else if (now - noticed > std::chrono::milliseconds(20)) throw_lost(running, "");  // what others sent before counts
      if (now - start > Watch::patience) look(running);
      const bool interrupted = comm::detail::wait_must_end(start);
      if (interrupted || now - start > process_->deadline) {
        std::string missing;
        for (const int q : running.transfer.missing()) weft::detail::append_to(missing, {missing.empty() ? "" : ", ", q});
        if (interrupted)
          comm::detail::throw_interrupted(process_->rank, axis_, running.transfer.call(), running.sequence, "rank " + missing);
        throw TimeoutError(process_->rank, axis_, describe(running.transfer.call()), running.sequence,
                           "waited for rank " + missing + " longer than the deadline of " +
                               std::to_string(process_->deadline.count()) + " s; last operations: " + process_->recorder.text());
      }
    }
  } catch (...) {  // what failed touches no buffer any more
    give_up(running);
    throw;
  }
}

inline std::shared_ptr<Group> TcpGroup::split(int color, int key, std::string axis) {
  const auto n = std::size_t(size());
  const std::int64_t mine[] = {color, key, std::int64_t(process_->next_group),
                               std::int64_t(weft::detail::hash_bytes(axis.data(), axis.size()))};
  std::vector<std::int64_t> all(4 * n);
  execute({.operation = Operation::all_gather,
           .type = DataType::int64,
           .purpose = Purpose::split,
           .function = process_->recorder.function(),
           .count = 4,
           .input = mine,
           .output = all.data()});
  std::vector<std::size_t> same;
  std::uint64_t number = 0;  // new to every rank that gets it
  for (std::size_t q = 0; q < n; ++q) {
    number = std::max(number, std::uint64_t(all[4 * q + 2]));
    if (all[4 * q] == color) same.push_back(q);
    if (all[4 * q + 3] != mine[3])
      throw MismatchError(
          process_->rank, axis_, "split()", sequence_,
          weft::detail::joined({"ranks disagree: rank ", rank_, " splits for axis ", axis, ", rank ", long(q), " for another"}));
  }
  if (number + 1 >= most_groups) throw_error<UsageError>({"split: more than ", most_groups, " communicators of one world"});
  process_->next_group = number + 1;
  std::stable_sort(same.begin(), same.end(), [&](std::size_t a, std::size_t b) { return all[4 * a + 1] < all[4 * b + 1]; });
  if (same.size() == 1) return std::make_shared<SelfGroup>(std::move(axis), "tcp");
  std::vector<int> members;
  for (const std::size_t q : same) members.push_back(members_[q]);
  auto group = std::make_shared<TcpGroup>(process_, number, members, std::move(axis));
  return shared_memory::SharedMemoryGroup::over(process_, std::move(group), 2 * number + 1, std::move(members));
}

}  // namespace weft::comm::tcp
