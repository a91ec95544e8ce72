// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of thread ranks: one object for each rank and communicator, over slots and mailboxes that its ranks share.

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/threads/exchange.hpp>
#include <weft/comm/threads/mailbox.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>

namespace weft::comm::threads {

/// The state that the ranks of one communicator share.
struct Shared {
  Shared(std::shared_ptr<World> w, weft::detail::List<int> m, std::string a)
      : world(std::move(w)),
        members(std::move(m)),
        axis(std::move(a)),
        exchange(int(members.size())),
        mailboxes(members.size()) {}

  std::shared_ptr<World> world;
  weft::detail::List<int> members;  ///< their numbers in the world
  std::string axis;
  Exchange exchange;
  weft::detail::List<Mailbox> mailboxes;

  /// The part of the split with this number that has this color, kept until all its ranks have joined and one of them releases
  /// it.
  WEFT_COLD std::shared_ptr<Shared> part(std::uint64_t number, int color, const weft::detail::List<int>& its_members, const std::string& its_axis) {
    std::lock_guard lock(mutex);
    for (Part* known = parts.get(); known != nullptr; known = known->next.get())
      if (known->number == number && known->color == color) return known->shared;
    auto made = weft::detail::new_shared<Shared>(world, weft::detail::List<int>(its_members), std::string(its_axis));
    parts.reset(new Part{number, color, made, std::move(parts)});
    return made;
  }
  void forget_part(std::uint64_t number, int color) {
    std::lock_guard lock(mutex);
    for (weft::detail::Owner<Part>* at = &parts; *at; at = &(*at)->next)
      if ((*at)->number == number && (*at)->color == color) {
        *at = std::move((*at)->next);
        return;
      }
  }

 private:
  struct Part {
    std::uint64_t number;
    int color;
    std::shared_ptr<Shared> shared;
    weft::detail::Owner<Part> next;
  };
  std::mutex mutex;
  weft::detail::Owner<Part> parts;
};

class ThreadGroup final : public Group, public std::enable_shared_from_this<ThreadGroup> {
 public:
  ThreadGroup(std::shared_ptr<Shared> shared, int rank)
      : shared_(std::move(shared)), world_(*shared_->world), rank_(rank), world_rank_(shared_->members[std::size_t(rank)]) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_->exchange.size(); }
  std::string_view axis() const override { return shared_->axis; }
  std::string_view backend() const override { return "threads"; }
  bool supports(Operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host; }

  void execute(const Call& call) override {
    const std::uint64_t number = begin(call);
    if (call.operation == Operation::send) {
      Send operation = post_send(call);
      if (!operation.complete()) finish(world_.wait(world_rank_, operation), call);
    } else if (call.operation == Operation::recv) {
      Receive operation(world_, shared_->mailboxes[std::size_t(rank_)], shared_->members, rank_, call);
      finish(world_.wait(world_rank_, operation), call);
    } else {
      Collective operation(world_, shared_->exchange, shared_->members, rank_, next_collective(call), call);
      operation.post(oldest_open(operation.sequence()));
      finish(world_.wait(world_rank_, operation), call);
      known_open_ = operation.oldest_open();
    }
    self().recorder.complete(number);
  }

  // `inline` here: otherwise the first of these functions is the key function, and every file that includes this one emits the
  // class.
  inline std::unique_ptr<Pending> start(const Call& call) override;
  inline std::shared_ptr<Group> split(int color, int key, std::string axis) override;

 private:
  class Started;
  class SlotFree;

  Rank& self() { return world_.rank(world_rank_); }

  std::uint64_t begin(const Call& call) {
    ++sequence_;
    call.order.fence();
    if (world_.failed()) finish(World::Outcome::failed, call);
    return self().recorder.begin(shared_->axis, sequence_, signature(call), call.count);
  }

  Send post_send(const Call& call) {
    const bool eager = call.bytes() <= eager_bytes;
    auto message = weft::detail::new_shared<Message>();
    message->from = rank_;
    message->tag = call.tag;
    message->type = call.type;
    message->count = call.count;
    message->data = call.input;
    if (eager && call.bytes() != 0) {
      message->copy.reset(new std::byte[call.bytes()]);
      std::memcpy(message->copy.get(), call.input, call.bytes());
      message->data = message->copy.get();
    }
    shared_->mailboxes[std::size_t(call.root)].send(message);
    self().advances.fetch_add(1, std::memory_order_relaxed);
    world_.wake(shared_->members[std::size_t(call.root)]);
    return Send(self(), std::move(message), eager);
  }

  /// The number of the next collective, once its slot is free.
  std::uint64_t next_collective(const Call& call);

  /// The oldest collective of this group that this rank has not finished, or `next`.
  std::uint64_t oldest_open(std::uint64_t next) {
    for (const Collective* operation = open_.first(); operation != nullptr; operation = operation->next_open)
      if (!operation->shared()) next = std::min(next, operation->sequence());
    return next;
  }

  /// Throws unless the wait ended well.
  void finish(World::Outcome outcome, const Call& call) {
    if (outcome == World::Outcome::done && !world_.failed()) return;
    fail(outcome, call);
  }
  void fail(World::Outcome outcome, const Call& call);

  std::shared_ptr<Shared> shared_;
  World& world_;
  int rank_, world_rank_;
  std::uint64_t sequence_ = 0;     // counts all operations, for messages
  std::uint64_t collectives_ = 0;  // counts operations that use slots: the same on every rank
  std::uint64_t known_open_ = 0;   // all ranks have finished the collectives below this one
  IntrusiveList<Collective, &Collective::next_open> open_;
};

// A wait for a free slot: a slot may be used again once every rank has finished with its content.
class ThreadGroup::SlotFree final : public Advancing {
 public:
  SlotFree(Exchange& exchange, std::uint64_t sequence) : exchange_(exchange), sequence_(sequence) {}
  bool advance() override {
    for (int q = 0; q < exchange_.size(); ++q)
      if (exchange_.entry(sequence_, q).done.load(std::memory_order_seq_cst) < sequence_) return false;
    complete_ = true;
    return true;
  }

 private:
  Exchange& exchange_;
  std::uint64_t sequence_;
};

inline std::uint64_t ThreadGroup::next_collective(const Call& call) {
  const std::uint64_t sequence = collectives_ + 1;
  if (sequence > Exchange::slots && known_open_ <= sequence - Exchange::slots) {
    SlotFree free(shared_->exchange, sequence - Exchange::slots);
    finish(world_.wait(world_rank_, free), call);
    self().advances.fetch_add(1, std::memory_order_relaxed);
  }
  return collectives_ = sequence;
}

WEFT_COLD inline void ThreadGroup::fail(World::Outcome outcome, const Call& call) {
  if (outcome == World::Outcome::timed_out)
    world_.fail(world_rank_, weft::detail::joined({"waited longer than the deadline of ", std::to_string(world_.deadline().count()), " s; ",
                                     world_.positions()}));
  if (outcome == World::Outcome::stuck)
    world_.fail(world_rank_, weft::detail::joined({"ranks wait for each other and none can go on: ", world_.positions()}), true);
  world_.quiesce(world_rank_);
  const Failure failure = world_.failure();
  const std::string name = describe(call);
  if (failure.mismatch) throw MismatchError(world_rank_, shared_->axis, name, sequence_, failure.text);
  if (outcome == World::Outcome::timed_out && failure.rank == world_rank_)
    throw TimeoutError(world_rank_, shared_->axis, name, sequence_, failure.text);
  throw AbortedError(world_rank_, shared_->axis, name, sequence_,
                     weft::detail::joined({"rank ", failure.rank, " has failed", failure.text.empty() ? "" : ": ", failure.text}));
}

/// The handle of a started operation: keeps it in its rank's list until it is complete.
class ThreadGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<ThreadGroup> group, weft::detail::Owner<Advancing> operation, Collective* collective, const Call& call,
          std::uint64_t number)
      : group_(std::move(group)), operation_(std::move(operation)), collective_(collective), call_(call), number_(number) {
    if (!operation_->complete()) group_->self().under_way.append(*operation_);
    if (collective_ != nullptr) group_->open_.append(*collective_);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  ~Started() override {
    group_->self().under_way.remove(*operation_);
    if (collective_ != nullptr) group_->open_.remove(*collective_);
  }

  bool test() override {
    if (!operation_->complete()) {
      group_->world_.advance_all(group_->self());
      if (group_->world_.failed()) group_->fail(World::Outcome::failed, call_);
    }
    return completed();
  }
  void wait() override {
    if (!operation_->complete()) group_->finish(group_->world_.wait(group_->world_rank_, *operation_), call_);
    completed();
  }
  void abandon() noexcept override {
    try {
      if (operation_->complete()) return;
      if (std::uncaught_exceptions() == 0) return wait();
      group_->world_.fail(group_->world_rank_, "");  // its own error follows when the rank's function has been left
    } catch (const std::exception&) {                // the failure is known to the world and to whatever this rank does next
    }
    group_->world_.quiesce(group_->world_rank_);
  }

 private:
  bool completed() {
    if (operation_->complete()) group_->self().recorder.complete(number_);
    return operation_->complete();
  }

  std::shared_ptr<ThreadGroup> group_;
  weft::detail::Owner<Advancing> operation_;
  Collective* collective_;  // the operation, if it is a collective
  Call call_;
  std::uint64_t number_;
};

inline std::unique_ptr<Pending> ThreadGroup::start(const Call& call) {
  const std::uint64_t number = begin(call);
  weft::detail::Owner<Advancing> operation;
  Collective* collective = nullptr;
  if (call.operation == Operation::send) {
    operation.reset(new Send(post_send(call)));
  } else if (call.operation == Operation::recv) {
    operation.reset(new Receive(world_, shared_->mailboxes[std::size_t(rank_)], shared_->members, rank_, call));
  } else {
    operation.reset(collective =
                        new Collective(world_, shared_->exchange, shared_->members, rank_, next_collective(call), call));
    collective->keep_counts();
    collective->post(oldest_open(collective->sequence()));
  }
  return std::unique_ptr<Pending>(new Started(shared_from_this(), std::move(operation), collective, call, number));
}

inline std::shared_ptr<Group> ThreadGroup::split(int color, int key, std::string axis) {
  const int n = size();
  struct Asked {
    std::int64_t color, key, axis;
  };
  const Asked mine{color, key, std::int64_t(std::hash<std::string>{}(axis))};
  const std::unique_ptr<Asked[]> all(new Asked[std::size_t(n)]);
  execute({.operation = Operation::all_gather, .type = DataType::int64, .count = 3, .input = &mine, .output = all.get()});
  weft::detail::List<int> order;  // ranks here, by key
  for (int q = 0; q < n; ++q) {
    if (all[std::size_t(q)].color == color) {
      order.push_back(q);
      for (std::size_t k = order.size() - 1; k > 0 && all[std::size_t(order[k - 1])].key > all[std::size_t(q)].key; --k)
        std::swap(order[k - 1], order[k]);
    }
    if (all[std::size_t(q)].axis != mine.axis) {
      world_.fail(world_rank_,
                  weft::detail::joined({"ranks disagree: rank ", world_rank_, " splits for axis ", axis, ", rank ",
                          shared_->members[std::size_t(q)], " for another"}),
                  true);
      fail(World::Outcome::failed, {.operation = Operation::split});
    }
  }
  int rank = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] == rank_) rank = int(k);
    order[k] = shared_->members[std::size_t(order[k])];
  }
  const bool alone = order.size() == 1;
  const std::uint64_t number = collectives_;
  std::shared_ptr<Shared> part;
  if (!alone) part = shared_->part(number, color, order, axis);
  execute({.operation = Operation::barrier});
  if (rank == 0) shared_->forget_part(number, color);
  if (alone) return weft::detail::new_shared<SelfGroup>(std::move(axis), "threads");
  return std::make_shared<ThreadGroup>(std::move(part), rank);
}

}  // namespace weft::comm::threads
