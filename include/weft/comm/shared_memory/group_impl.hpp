// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/group.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/comm/shared_memory/group.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::shared_memory {

WEFT_INLINE Doorbell* Bells::find(const Address& address) {
  for (const Memory& memory : memories_)
    if (memory && std::equal(address.secret, address.secret + 2, memory.address().secret)) return bell_of(memory);
  Memory found = Memory::open(address);
  if (!found) return nullptr;
  memories_.push_back(std::move(found));
  return bell_of(memories_.back());
}

WEFT_INLINE SharedMemoryGroup::~SharedMemoryGroup() { std::erase(process_->groups, this); }

WEFT_INLINE int SharedMemoryGroup::rank() const { return slots_.rank(); }

WEFT_INLINE int SharedMemoryGroup::size() const { return slots_.size(); }

WEFT_INLINE std::string_view SharedMemoryGroup::axis() const { return inner_->axis(); }

WEFT_INLINE std::string_view SharedMemoryGroup::backend() const { return inner_->backend(); }

WEFT_INLINE bool SharedMemoryGroup::supports(Operation operation, DataType type, MemoryKind memory) const {
  return inner_->supports(operation, type, memory);
}

WEFT_INLINE void SharedMemoryGroup::execute(const Call& call) {
  if (is_point_to_point(call.operation)) return inner_->execute(call);
  Running running(*this, call);
  wait(running);
}

WEFT_INLINE std::shared_ptr<Group> SharedMemoryGroup::split(int color, int key, std::string axis) {
  execute(
      {.operation = Operation::split,
       .function =
           process_->recorder.function()});  // nobody waits inside the backend while others need this rank for earlier operations
  return inner_->split(color, key, std::move(axis));
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::end() {
  Group::end();
  if (const std::string why = process_->watch->unreceived(*this); !why.empty())
    throw MismatchError(process_->rank, axis(), "the end of the program", sequence_, why);
}

WEFT_INLINE void SharedMemoryGroup::progress() {
  while (Running* running = broken_ ? nullptr : open_operations_.first()) {
    advance(*running);
    if (!running->complete()) return;
  }
}

WEFT_INLINE SharedMemoryGroup::Running::Running(SharedMemoryGroup& of, const Call& call)
    : group(of), collective(of.slots_, call) {
  call.order.fence();
  sequence = ++of.sequence_;
  if (of.broken_) of.throw_broken(*this);
  if (of.process_->disturbed()) [[unlikely]]
    of.throw_disturbed(*this);
  comm::detail::expect_no_stop(of.process_->rank, of.axis(), call, sequence);
  number = of.process_->recorder.begin(*of.flight_, sequence, call);
  collective_number = of.ledger_->collective(call);
  of.process_->watch->tidy();
  of.open_operations_.append(*this);
  ++of.process_->under_way;
  in_row = true;
}

WEFT_INLINE void SharedMemoryGroup::advance(Running& running) {
  if (!running.collective.begun()) running.collective.begin(next_round_);
  bool posted = false;
  running.collective.advance(posted);
  if (posted) {
    ++moves_;
    for (Doorbell* bell : bells_) bell->ring();
  }
  if (!running.collective.disagreement().empty()) refuse(running);
  if (!running.collective.complete()) return;
  next_round_ = running.collective.end();
  running.done = true;
  process_->recorder.complete(running.number);
  running.leave();
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::refuse(Running& running) {
  const std::string why = running.collective.disagreement();
  if (running.in_row) running.give_up();
  process_->watch->accuse(ledger_->channel(), why);
  throw MismatchError(process_->rank, axis(), describe(running.collective.call()), running.sequence, why);
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::time_out(Running& running) {
  const int q = running.collective.missing();
  running.give_up();
  throw TimeoutError(process_->rank, axis(), describe(running.collective.call()), running.sequence,
                     weft::detail::joined({"waited longer than the deadline of ", std::to_string(process_->deadline.count()),
                                           " s", q < 0 ? std::string() : weft::detail::joined({" for rank ", q, " of ", axis()}),
                                           "; last operations: ", process_->recorder.text()}));
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::interrupt(Running& running) {
  const int q = running.collective.missing();
  running.give_up();
  comm::detail::throw_interrupted(process_->rank, axis(), running.collective.call(), running.sequence,
                                  q < 0 ? std::string() : weft::detail::joined({"rank ", q, " of ", axis()}));
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::throw_broken(const Running& running) {
  throw AbortedError(process_->rank, axis(), describe(running.collective.call()), running.sequence,
                     "an earlier operation of this communicator has failed on this rank");
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::throw_disturbed(const Running& running) {
  const int lost = process_->lost();
  throw AbortedError(process_->rank, axis(), describe(running.collective.call()), running.sequence,
                     lost < 0 ? std::string("a connection has delivered bytes that are no valid frame") : process_->fate(lost));
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::abort(Running& running, int lost) {
  running.give_up();
  throw AbortedError(process_->rank, axis(), describe(running.collective.call()), running.sequence, process_->fate(lost));
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::look(Running& running) {
  const Call& call = running.collective.call();
  if (!running.long_wait) {
    running.long_wait = std::make_unique<Watch::Wait>(*ledger_, call, running.collective_number, process_->recorder.text(2));
    for (int q = 0; q < size(); ++q)
      if (q != rank()) running.long_wait->on.push_back(members_[std::size_t(q)]);
  }
  const std::string why = process_->watch->look(*running.long_wait);
  if (why.empty()) return;
  running.give_up();
  throw MismatchError(process_->rank, axis(), describe(call), running.sequence, why);
}

/// Spins a little if every rank has a core, and again whenever the group has advanced; then sleeps until another rank rings. A
/// rank that slept between two rounds would make the others wait so long that they sleep too, and every round would take as long
/// as a wake-up. If spinning fails again and again (other programs have left one core for two ranks) it is short, except for one
/// try in eight.
WEFT_INLINE void SharedMemoryGroup::wait(Running& running) {
  using Clock = std::chrono::steady_clock;
  const int spins = process_->crowded ? 20 : 3000, yields = process_->crowded ? 4 : 2;
  const auto advance_all = [&] {
    if (process_->under_way > 1) process_->progress();
    else progress();
    return running.complete();
  };
  std::uint64_t seen = moves_;
  unsigned in_vain = 0;
  const auto spin = [&] {
    for (int turn = 0, most = in_vain % 8 == 0 ? spins : spins / 10; turn < most + yields; ++turn) {
      if (advance_all()) return true;
      if (std::exchange(seen, moves_) != moves_) {
        turn = 0;
        in_vain = 0;
        most = spins;
      }
      if (turn < most) weft::detail::relax();
      else std::this_thread::yield();
    }
    ++in_vain;
    return false;
  };
  if (spin()) return;
  const auto start = Clock::now();
  auto noticed = start;
  struct Asleep {
    Doorbell& bell;
    explicit Asleep(Doorbell& b) : bell(b) { bell.lie_down(); }
    ~Asleep() { bell.get_up(); }
  };
  while (!running.complete()) {
    {
      const Asleep asleep(process_->bells->mine());
      if (advance_all()) return;
      // Who waits for a message through the backend is not woken, and looks often.
      const std::chrono::microseconds most(process_->polled != 0 ? 100 : 20000),
          left(std::int64_t(process_->deadline.count() * 1e6));
      asleep.bell.sleep(std::clamp(left, std::chrono::microseconds(1), most));
    }
    if (advance_all() || (moves_ != seen && spin())) return;
    const auto now = Clock::now();
    const int lost = process_->lost();
    if (lost < 0) noticed = now;
    else if (now - noticed > std::chrono::milliseconds(20)) abort(running, lost);  // what others posted before counts
    if (now - start > process_->deadline) time_out(running);
    if (now - start > Watch::patience) look(running);
    if (comm::detail::wait_must_end(start)) interrupt(running);
    if (broken_) throw_broken(running);
  }
}

WEFT_INLINE bool SharedMemoryGroup::Started::test() {
  if (!running_.complete()) {
    expect_alive();
    group_->process_->progress();
  }
  return running_.complete();
}

WEFT_INLINE void SharedMemoryGroup::Started::wait() {
  if (running_.complete()) return;
  expect_alive();
  group_->wait(running_);
}

WEFT_INLINE void SharedMemoryGroup::Started::abandon() noexcept {
  if (running_.complete() || !running_.in_row) return;
  if (std::uncaught_exceptions() == 0) {
    try {
      return wait();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  if (running_.in_row) running_.give_up();
}

WEFT_INLINE std::unique_ptr<Pending> SharedMemoryGroup::start(const Call& call) {
  if (is_point_to_point(call.operation)) return inner_->start(call);
  auto started = std::make_unique<Started>(shared_from_this(), call);
  progress();
  return started;
}

WEFT_INLINE std::shared_ptr<Group> SharedMemoryGroup::over(std::shared_ptr<Sharing> process, std::shared_ptr<Group> inner,
                                                           std::uint64_t channel, std::vector<int> members) {
  const auto n = std::size_t(inner->size());
  const auto exchange = [&](const std::uint64_t* mine, std::size_t words, std::uint64_t* all) {
    inner->execute({.operation = Operation::all_gather, .type = DataType::uint64, .count = words, .input = mine, .output = all});
  };
  struct Offer {
    Address bell, slots;
    Cores cores;
    std::uint64_t shares;
  };
  constexpr std::size_t words = sizeof(Offer) / sizeof(std::uint64_t);
  static_assert(sizeof(Offer) == words * sizeof(std::uint64_t));
  Offer mine{};
  mine.cores = Cores::mine();
  Memory memory;
  if (process->shares && n <= std::size_t(most_ranks)) {
    if (!process->bells) process->bells = std::make_unique<Bells>();
    mine.shares = bool(*process->bells);
    mine.bell = process->bells->own();
    if (inner->rank() == 0) {
      memory = Memory::create(Slots::total(int(n)));
      mine.shares = mine.shares && memory;
      mine.slots = memory.address();
    }
  }
  std::vector<Offer> offers(n);
  exchange(reinterpret_cast<const std::uint64_t*>(&mine), words, reinterpret_cast<std::uint64_t*>(offers.data()));
  std::uint64_t good = 1;
  Cores cores;
  for (const Offer& offer : offers) {
    good = good && offer.shares;
    cores.add(offer.cores);
  }
  std::vector<Doorbell*> bells;
  for (std::size_t q = 0; good != 0 && q < n; ++q) {
    if (q == std::size_t(inner->rank())) continue;
    bells.push_back(process->bells->find(offers[q].bell));
    good = bells.back() != nullptr;
  }
  if (good != 0 && inner->rank() != 0) memory = Memory::open(offers[0].slots);
  good = good != 0 && memory;
  std::vector<std::uint64_t> all(n);
  exchange(&good, 1, all.data());
  const bool here = std::find(all.begin(), all.end(), 0u) == all.end();
  if (cores.count() < int(n) && (here || !process->shares)) process->crowded = true;
  if (!here) return inner;
  memory.close();
  return std::make_shared<SharedMemoryGroup>(std::move(process), std::move(inner), channel, std::move(members), std::move(memory),
                                             std::move(bells));
}

}  // namespace weft::comm::shared_memory
