// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Group of processes that share only the store at rank 0. Device backends use it for host memory: their ranks agree on small
// things (identifiers, splits, scalars) and need no other library for that. A collective is a message from every rank to the
// group's first rank and one message back with all data; each rank forms sums itself, in rank order. Not for large data:
// everything goes through rank 0, and the store holds 64 MiB.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/store/process.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::store {

class StoreGroup final : public Group, public std::enable_shared_from_this<StoreGroup> {
 public:
  /// `members`: the ranks of the world in the order of the group, this rank among them.
  StoreGroup(std::shared_ptr<Process> process, std::uint64_t number, std::vector<int> members, std::string axis);
  StoreGroup(const StoreGroup&) = delete;
  StoreGroup& operator=(const StoreGroup&) = delete;
  WEFT_INLINE ~StoreGroup() override;

  WEFT_INLINE int rank() const override;
  WEFT_INLINE int size() const override;
  WEFT_INLINE std::string_view axis() const override;
  WEFT_INLINE std::string_view backend() const override;
  WEFT_INLINE bool supports(Operation, DataType, MemoryKind memory) const override;

  Flight flight() override { return {&process_->recorder, flight_.get()}; }

  WEFT_INLINE void execute(const Call& call) override;
  std::unique_ptr<Pending> start(const Call& call) override;
  std::shared_ptr<Group> split(int color, int key, std::string axis) override;

 private:
  class Started;

  struct Running {
    Call call;
    std::vector<std::size_t> counts;
    std::uint64_t sequence = 0, number = 0;
    std::string key;                 ///< of the awaited message, or the prefix of its keys
    std::vector<std::string> parts;  ///< on the first rank: what each rank has sent
    std::vector<bool> come;
    bool complete = false;
  };

  /// The properties that ranks compare, and the lengths that only the sender knows.
  struct Head {
    std::uint64_t signature = 0, count = 0, counts = 0, bytes = 0;
  };
  static std::string bytes_of(const void* data, std::size_t bytes) {
    return bytes == 0 ? std::string() : std::string(static_cast<const char*>(data), bytes);
  }
  static Head head_of(const std::string& message) {
    Head head;
    if (message.size() >= sizeof head) std::memcpy(&head, message.data(), sizeof head);
    return head;
  }
  static bool by_counts(Operation operation) {
    return operation == Operation::all_gather_v || operation == Operation::reduce_scatter_v ||
           operation == Operation::all_to_all_v;
  }

  /// The number of elements that this rank sends.
  std::size_t given(const Call& call) const;
  std::string contribution(const Call& call) const;

  void post(Running& running);
  bool advance(Running& running);
  void finish(Running& running, const std::string& everything);
  void gather_all(Running& running);
  void advance_all();
  static void advance_everything(Process& process) {
    const auto groups = process.groups;
    for (StoreGroup* group : groups) group->advance_all();
  }
  void wait(Running& running);
  /// The ranks whose data an operation waits for: "rank 1, 2".
  std::string missing(const Running& running) const;
  /// Runs f; errors of the store get the name of the operation.
  template <class F>
  auto guarded(const Running& running, F&& f) {
    try {
      return f();
    } catch (const StoreError& error) {
      throw AbortedError(process_->rank(), axis_, describe(running.call), running.sequence, std::string(error.text()));
    }
  }
  std::string key(std::uint64_t collective, int rank) const {
    return weft::detail::joined({"c/", number_, "/", collective, "/", rank});
  }

  std::shared_ptr<Process> process_;
  std::uint64_t number_;
  std::vector<int> members_;
  std::string axis_;
  std::shared_ptr<FlightRecorder::Line> flight_;
  int rank_ = 0;
  std::uint64_t sequence_ = 0, collectives_ = 0;
  std::map<std::pair<int, int>, std::uint64_t> sent_, received_;  // numbers of messages, by rank and tag
  std::vector<std::shared_ptr<Running>> under_way_;
};

class StoreGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<StoreGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  WEFT_INLINE ~Started() override;
  WEFT_INLINE bool test() override;
  WEFT_INLINE void wait() override;
  WEFT_INLINE void abandon() noexcept override;

 private:
  std::shared_ptr<StoreGroup> group_;
  std::shared_ptr<Running> running_;
  unsigned turns_ = 0;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/group_impl.hpp>
#endif
