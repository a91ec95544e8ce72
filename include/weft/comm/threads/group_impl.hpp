// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/threads/group.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/threads/group.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

WEFT_INLINE Shared::~Shared() { expect_all_received(); }

WEFT_COLD WEFT_INLINE void Shared::expect_all_received() {
  if (world->failed() || std::uncaught_exceptions() > 0) return;  // then messages are lost
  std::string text;
  int first = -1;
  for (std::size_t to = 0; to < mailboxes.size(); ++to) {
    const Message* message = mailboxes[to].unreceived();
    if (message == nullptr) continue;
    const Call sent{.operation = Operation::send, .type = message->type, .tag = message->tag, .count = message->count};
    const int from = members[std::size_t(message->from)];
    if (first < 0) first = from;
    weft::detail::append_to(text, {text.empty() ? "" : "; ", "rank ", from, " called ", describe(signature(sent), sent.count),
                                   " to rank ", members[to], " on ", axis, ", which never received it"});
  }
  if (first >= 0) world->fail(first, text, true);
}

WEFT_COLD WEFT_INLINE std::shared_ptr<Shared> Shared::part(std::uint64_t its_number, int color,
                                                           const std::vector<int>& its_members, const std::string& its_axis) {
  std::lock_guard lock(mutex);
  for (Part* known = parts.get(); known != nullptr; known = known->next.get())
    if (known->number == its_number && known->color == color) return known->shared;
  auto made = std::make_shared<Shared>(world, std::vector<int>(its_members), std::string(its_axis), its_number);
  parts.reset(new Part{its_number, color, made, std::move(parts)});
  return made;
}

WEFT_INLINE void Shared::forget_part(std::uint64_t its_number, int color) {
  std::lock_guard lock(mutex);
  for (std::unique_ptr<Part>* at = &parts; *at; at = &(*at)->next)
    if ((*at)->number == its_number && (*at)->color == color) {
      *at = std::move((*at)->next);
      return;
    }
}

WEFT_INLINE int ThreadGroup::rank() const { return rank_; }

WEFT_INLINE int ThreadGroup::size() const { return shared_->exchange.size(); }

WEFT_INLINE std::string_view ThreadGroup::axis() const { return shared_->axis; }

WEFT_INLINE std::string_view ThreadGroup::backend() const { return "threads"; }

WEFT_INLINE bool ThreadGroup::supports(Operation, DataType, MemoryKind memory) const { return memory == MemoryKind::host; }

WEFT_INLINE void ThreadGroup::execute(const Call& call) {
  const std::uint64_t number = begin(call);
  if (call.operation == Operation::send) {
    Send operation = post_send(call);
    if (!operation.complete()) wait(operation, call);
  } else if (call.operation == Operation::recv) {
    Receive operation(world_, shared_->mailboxes[std::size_t(rank_)], shared_->members, rank_, call);
    wait(operation, call);
  } else {
    Collective operation(world_, shared_->exchange, shared_->members, rank_, next_collective(call), call);
    operation.post(oldest_open(operation.sequence()));
    wait(operation, call);
    known_open_ = operation.oldest_open();
  }
  self().recorder.complete(number);
}

WEFT_INLINE std::uint64_t ThreadGroup::begin(const Call& call) {
  ++sequence_;
  call.order.fence();
  if (world_.failed()) require_done(World::Outcome::failed, call);
  if (comm::detail::call_must_end()) [[unlikely]]
    interrupt(call, world_rank_);
  return self().recorder.begin(*flight_, sequence_, call);
}

WEFT_INLINE Send ThreadGroup::post_send(const Call& call) {
  const bool eager = call.bytes() <= eager_bytes;
  auto message = std::make_shared<Message>();
  message->from = rank_;
  message->tag = call.tag;
  message->function = call.function;
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
  return Send(self(), std::move(message), eager, shared_->members[std::size_t(call.root)]);
}

WEFT_INLINE std::uint64_t ThreadGroup::oldest_open(std::uint64_t next) {
  for (const Collective* operation = open_.first(); operation != nullptr; operation = operation->next_open)
    if (!operation->shared()) next = std::min(next, operation->sequence());
  return next;
}

WEFT_INLINE bool ThreadGroup::SlotFree::advance() {
  for (int q = 0; q < exchange_.size(); ++q)
    if (exchange_.entry(sequence_, q).done.load(std::memory_order_seq_cst) < sequence_) return false;
  complete_ = true;
  return true;
}

WEFT_INLINE std::uint64_t ThreadGroup::next_collective(const Call& call) {
  const std::uint64_t sequence = collectives_ + 1;
  if (sequence > Exchange::slots && known_open_ <= sequence - Exchange::slots) {
    SlotFree free(shared_->exchange, sequence - Exchange::slots);
    wait(free, call);
    self().advances.fetch_add(1, std::memory_order_relaxed);
  }
  return collectives_ = sequence;
}

WEFT_COLD WEFT_INLINE void ThreadGroup::fail(World::Outcome outcome, const Call& call) {
  if (outcome == World::Outcome::timed_out)
    world_.fail(world_rank_, weft::detail::joined({"waited longer than the deadline of ",
                                                   std::to_string(world_.deadline().count()), " s; ", world_.positions()}));
  if (outcome == World::Outcome::stuck)
    world_.fail(world_rank_, weft::detail::joined({"ranks wait for each other and none can go on: ", world_.positions()}), true);
  world_.quiesce(world_rank_);
  const Failure failure = world_.failure();
  const std::string name = describe(call);
  if (failure.mismatch) throw MismatchError(world_rank_, shared_->axis, name, sequence_, failure.text);
  if (outcome == World::Outcome::timed_out && failure.rank == world_rank_)
    throw TimeoutError(world_rank_, shared_->axis, name, sequence_, failure.text);
  throw AbortedError(
      world_rank_, shared_->axis, name, sequence_,
      weft::detail::joined({"rank ", failure.rank, " has failed", failure.text.empty() ? "" : ": ", failure.text}));
}

WEFT_COLD WEFT_INLINE void ThreadGroup::interrupt(const Call& call, int missing) {
  world_.fail(world_rank_, comm::detail::stop_text());
  if (world_.failure().rank != world_rank_) fail(World::Outcome::failed, call);
  world_.quiesce(world_rank_);
  if (missing == world_rank_) comm::detail::throw_interrupted(world_rank_, shared_->axis, call, sequence_);
  comm::detail::throw_interrupted(world_rank_, shared_->axis, call, sequence_,
                                  missing < 0 ? std::string() : weft::detail::joined({"rank ", missing}));
}

WEFT_INLINE ThreadGroup::Started::~Started() {
  group_->self().under_way.remove(*operation_);
  if (collective_ != nullptr) group_->open_.remove(*collective_);
}

WEFT_INLINE bool ThreadGroup::Started::test() {
  if (!operation_->complete()) {
    group_->world_.advance_all(group_->self());
    if (group_->world_.failed()) group_->fail(World::Outcome::failed, call_);
  }
  return completed();
}

WEFT_INLINE void ThreadGroup::Started::wait() {
  if (!operation_->complete()) group_->wait(*operation_, call_);
  completed();
}

WEFT_INLINE void ThreadGroup::Started::abandon() noexcept {
  try {
    if (operation_->complete()) return;
    if (std::uncaught_exceptions() == 0) return wait();
    group_->world_.fail(group_->world_rank_, "");  // its own error follows when the rank's function has been left
  } catch (const std::exception&) {                // the failure is known to the world and to whatever this rank does next
  }
  group_->world_.quiesce(group_->world_rank_);
}

WEFT_INLINE std::unique_ptr<Pending> ThreadGroup::start(const Call& call) {
  const std::uint64_t number = begin(call);
  std::unique_ptr<Advancing> operation;
  Collective* collective = nullptr;
  if (call.operation == Operation::send) {
    operation.reset(new Send(post_send(call)));
  } else if (call.operation == Operation::recv) {
    operation.reset(new Receive(world_, shared_->mailboxes[std::size_t(rank_)], shared_->members, rank_, call));
  } else {
    operation.reset(collective = new Collective(world_, shared_->exchange, shared_->members, rank_, next_collective(call), call));
    collective->keep_counts();
    collective->post(oldest_open(collective->sequence()));
  }
  return std::unique_ptr<Pending>(new Started(shared_from_this(), std::move(operation), collective, call, number));
}

WEFT_INLINE std::shared_ptr<Group> ThreadGroup::split(int color, int key, std::string axis) {
  const int n = size();
  struct Asked {
    std::int64_t color, key, axis, next;
  };
  const Asked mine{color, key, std::int64_t(std::hash<std::string>{}(axis)), std::int64_t(self().next_group)};
  const std::unique_ptr<Asked[]> all(new Asked[std::size_t(n)]);
  execute({.operation = Operation::all_gather,
           .type = DataType::int64,
           .purpose = Purpose::split,
           .function = self().recorder.function(),
           .count = 4,
           .input = &mine,
           .output = all.get()});
  std::vector<int> order;    // ranks here, by key
  std::uint64_t number = 0;  // new to every rank that gets it
  for (int q = 0; q < n; ++q) {
    number = std::max(number, std::uint64_t(all[std::size_t(q)].next));
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
  self().next_group = number + 1;
  std::shared_ptr<Shared> part;
  if (!alone) part = shared_->part(number, color, order, axis);
  execute({.operation = Operation::barrier, .function = self().recorder.function()});
  if (rank == 0) shared_->forget_part(number, color);
  if (alone) return std::make_shared<SelfGroup>(std::move(axis), "threads");
  return std::make_shared<ThreadGroup>(std::move(part), rank);
}

}  // namespace weft::comm::threads
