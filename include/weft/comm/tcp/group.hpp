// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of processes connected by a mesh, whose thread moves messages at any time; the later steps of an operation run inside
// any wait or test of this rank. comm/polled_group.hpp has the waits.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/polled_group.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/tcp/process.hpp>
#include <weft/comm/tcp/transfer.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::tcp {

class TcpGroup final : public PolledGroup {
 public:
  TcpGroup(std::shared_ptr<Process> process, std::uint64_t number, std::vector<int> members, std::string axis)
      : PolledGroup(std::move(process), 2 * number, std::move(members), std::move(axis), "tcp"), number_(number) {}

  /// A group of some ranks of the world, this rank among them: collectives go through shared memory if all share it.
  static std::shared_ptr<Group> over(std::shared_ptr<Process> process, std::uint64_t number, std::vector<int> members,
                                     std::string axis) {
    if (members.size() == 1) return std::make_shared<SelfGroup>(std::move(axis), "tcp");
    auto group = std::make_shared<TcpGroup>(process, number, members, std::move(axis));
    return shared_memory::SharedMemoryGroup::over(std::move(process), std::move(group), 2 * number + 1, std::move(members));
  }
  inline std::shared_ptr<Group> split(int color, int key, std::string axis) override;

 private:
  struct InFlight final : Running {
    InFlight(const Place& place, const Call& of, std::uint64_t collective, bool compares)
        : transfer(place, of, collective, compares) {
      call = &transfer.call();
    }
    Transfer transfer;
  };
  static Transfer& transfer(Running& running) { return static_cast<InFlight&>(running).transfer; }
  static const Transfer& transfer(const ProcessGroup::Running& running) { return static_cast<const InFlight&>(running).transfer; }
  Process& process() const { return static_cast<Process&>(*process_); }

  std::shared_ptr<Running> make(const Call& call, std::uint64_t step) override {
    return std::make_shared<InFlight>(Place{process().mesh.get(), number_, &members_, &heaps(), rank(), size()}, call,
                                      is_point_to_point(call.operation) ? 0 : step, process_->fingerprints);
  }
  void launch(Running& running) override {
    guarded(running, [&] { transfer(running).launch(); });
  }
  bool advance(Running& running) override {
    bool done = false;
    guarded(running, [&] { done = transfer(running).test(); });
    if (transfer(running).mismatch() != nullptr) refuse(running, *transfer(running).mismatch());
    return done;
  }
  void pause(const Running& running, Clock::duration) override {
    // The other collectives that go through shared memory advance only here.
    const std::chrono::microseconds most(process_->under_way > process_->polled ? 50 : 1000);
    guarded(running, [&] { transfer(running).wait(most); });
  }
  void take_back(std::shared_ptr<Running> running) override {
    transfer(*running).drop();
    process().given_up.push_back(std::move(running));
  }
  void expect_usable(const ProcessGroup::Running& running) override {
    if (running.call->tag < 0)
      throw_error<UsageError>({name_of(running.call->operation), ": tag ", running.call->tag, " is negative"});
    if (process_->disturbed()) [[unlikely]]
      throw_lost(running, "a connection has delivered bytes that are no valid frame");
  }
  std::vector<int> awaited(const ProcessGroup::Running& running) const override {
    const Call& call = *running.call;
    // The root receives long data after the envelopes of all ranks: a sender waits for all of them.
    const bool to_root = call.operation == Operation::gather || call.operation == Operation::reduce;
    if (!to_root || call.root == rank() || call.bytes() <= eager) return transfer(running).missing();
    std::vector<int> others = members_;
    std::erase(others, process_->rank);
    return others;
  }
  std::string missing(const ProcessGroup::Running& running) const override {
    std::string ranks;
    for (const int q : transfer(running).missing()) weft::detail::append_to(ranks, {ranks.empty() ? "rank " : ", ", q});
    return ranks;
  }

  /// Runs f; the error of a connection gets the name of the operation and of the lost rank.
  template <class F>
  void guarded(const ProcessGroup::Running& running, F&& f) {
    try {
      f();
    } catch (const Broken& error) {
      throw_lost(running, error.what());
    }
  }
  [[noreturn]] WEFT_COLD void throw_lost(const ProcessGroup::Running& running, const std::string& otherwise) {
    // The error reaches the buffers of a broken connection one after another: the lost rank is known within a moment.
    const auto end = Clock::now() + std::chrono::milliseconds(200);
    int q = process_->lost();
    for (; q < 0 && Clock::now() < end; q = process_->lost()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (q < 0) q = process().ended();  // a rank that failed because of another one
    throw_aborted(running, q >= 0 ? process_->fate(q) : otherwise);
  }
  [[noreturn]] WEFT_COLD void refuse(const Running& running, const Incoming& message) const {
    const Head found = message.head();
    const Call& call = *running.call;
    const std::string peer = rank_name(std::find(members_.begin(), members_.end(), message.peer()) - members_.begin());
    const std::string functions = functions_of(peer, found.signature, rank_name(rank()), message.expected().signature);
    if (is_point_to_point(call.operation))
      throw_disagreement(
          running, weft::detail::joined({peer, " sent ", found.count, " ", name_of(DataType(found.signature >> 8 & 0xff)), ", ",
                                         call.count, " ", name_of(call.type), " were expected", functions}));
    throw_disagreement(
        running, weft::detail::joined({"ranks disagree: ", peer, " called ", describe(found.signature, found.count), " with ",
                                       found.bytes, " bytes for rank ", rank(), ", which called ", describe(call),
                                       " and expects ", message.expected().bytes, functions}));
  }

  std::uint64_t number_;
};

inline std::shared_ptr<Group> TcpGroup::split(int color, int key, std::string axis) {
  const std::int64_t mine[] = {color, key, std::int64_t(process().next_group)};
  const std::vector<std::int64_t> all = gather_for_split(mine, axis);
  std::vector<std::size_t> same;
  std::uint64_t number = 0;  // new to every rank that gets it
  for (std::size_t q = 0; q < members_.size(); ++q) {
    number = std::max(number, std::uint64_t(all[3 * q + 2]));
    if (all[3 * q] == color) same.push_back(q);
  }
  if (number + 1 >= most_groups) throw_error<UsageError>({"split: more than ", most_groups, " communicators of one world"});
  process().next_group = number + 1;
  std::stable_sort(same.begin(), same.end(), [&](std::size_t a, std::size_t b) { return all[3 * a + 1] < all[3 * b + 1]; });
  std::vector<int> members;
  for (const std::size_t q : same) members.push_back(members_[q]);
  return over(std::static_pointer_cast<Process>(process_), number, std::move(members), std::move(axis));
}

}  // namespace weft::comm::tcp
