// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of processes of one machine: collectives through shared memory, messages between two ranks through the group of the
// backend that started the processes. It is used if all ranks of a group can open each other's memory; WEFT_SHARED_MEMORY=0 turns
// it off.

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/process.hpp>
#include <weft/comm/relax.hpp>
#include <weft/comm/intrusive_list.hpp>
#include <weft/comm/shared_memory/doorbell.hpp>
#include <weft/comm/shared_memory/collective.hpp>
#include <weft/comm/shared_memory/memory.hpp>

namespace weft::comm::shared_memory {

/// The doorbells known to this process: its own, and those of the processes with which it has a group.
class Bells {
 public:
  Bells() { memories_.push_back(Memory::create(sizeof(Doorbell))); }
  const Address& own() const { return memories_.front().address(); }
  explicit operator bool() const { return bool(memories_.front()); }
  /// Null if it cannot be opened.
  Doorbell* find(const Address& address) {
    for (const Memory& memory : memories_)
      if (memory && std::equal(address.secret, address.secret + 2, memory.address().secret)) return bell_of(memory);
    Memory found = Memory::open(address);
    if (!found) return nullptr;
    memories_.push_back(std::move(found));
    return bell_of(memories_.back());
  }
  Doorbell& mine() const { return *bell_of(memories_.front()); }

 private:
  static Doorbell* bell_of(const Memory& memory) { return reinterpret_cast<Doorbell*>(memory.data()); }
  std::vector<Memory> memories_;
};

/// A Process whose groups may share memory.
struct Sharing : Process {
  using Process::Process;
  bool shares = [] {
    const char* text = std::getenv("WEFT_SHARED_MEMORY");
    return text == nullptr || std::string_view(text) != "0";
  }();
  std::unique_ptr<Bells> bells;
  bool crowded = false;  ///< the ranks on this machine outnumber their cores
};

/// The cores that a process may use: launchers often give each process some of them.
struct Cores {
  std::uint64_t bits[16] = {};
  static Cores mine() {
    Cores cores;
    if (::sched_getaffinity(0, sizeof cores.bits, reinterpret_cast<cpu_set_t*>(cores.bits)) != 0) cores.bits[0] = 1;
    return cores;
  }
  void add(const Cores& other) {
    for (int k = 0; k < 16; ++k) bits[k] |= other.bits[k];
  }
  int count() const {
    int n = 0;
    for (const std::uint64_t word : bits) n += std::popcount(word);
    return n;
  }
};

class SharedMemoryGroup final : public Group, public Progress, public std::enable_shared_from_this<SharedMemoryGroup> {
 public:
  /// `inner` with its collectives through shared memory, or `inner` itself if memory cannot be shared. Collective over it.
  static std::shared_ptr<Group> over(std::shared_ptr<Sharing> process, std::shared_ptr<Group> inner);

  SharedMemoryGroup(std::shared_ptr<Sharing> process, std::shared_ptr<Group> inner, Memory memory, std::vector<Doorbell*> bells)
      : process_(std::move(process)),
        inner_(std::move(inner)),
        memory_(std::move(memory)),
        bells_(std::move(bells)),
        slots_(memory_.data(), inner_->rank(), inner_->size()) {
    process_->groups.push_back(this);
  }
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;
  ~SharedMemoryGroup() override { std::erase(process_->groups, this); }

  int rank() const override { return slots_.rank(); }
  int size() const override { return slots_.size(); }
  std::string_view axis() const override { return inner_->axis(); }
  std::string_view backend() const override { return inner_->backend(); }
  bool supports(Operation operation, DataType type, MemoryKind memory) const override { return inner_->supports(operation, type, memory); }

  void execute(const Call& call) override {
    if (is_point_to_point(call.operation)) return inner_->execute(call);
    Running running(*this, call);
    wait(running);
  }
  std::unique_ptr<Pending> start(const Call& call) override;
  std::shared_ptr<Group> split(int color, int key, std::string axis) override {
    execute({.operation = Operation::split});  // nobody waits inside the backend while others need this rank for earlier operations
    return inner_->split(color, key, std::move(axis));
  }
  void progress() override {
    while (Running* running = broken_ ? nullptr : open_operations_.first()) {
      advance(*running);
      if (!running->complete()) return;
    }
  }

 private:
  /// An operation, in the group's list from its start until it is complete. Operations advance in the order of their starts.
  struct Running {
    Running(SharedMemoryGroup& of, const Call& call) : group(of), collective(of.slots_, call, of.process_->fingerprints) {
      call.order.fence();
      sequence = ++of.sequence_;
      if (of.broken_) of.throw_broken(*this);
      number = of.process_->recorder.begin(of.axis(), sequence, signature(call), call.count);
      of.open_operations_.append(*this);
      ++of.process_->under_way;
      in_row = true;
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      if (in_row) give_up();
    }
    bool complete() const { return !in_row && done; }
    void leave() {
      group.open_operations_.remove(*this);
      --group.process_->under_way;
      in_row = false;
    }
    /// Ends the operation early; it touches no buffer any more. The group is broken: its rounds no longer match those of the
    /// other ranks.
    void give_up() {
      leave();
      group.broken_ = true;
    }

    SharedMemoryGroup& group;
    Collective collective;
    std::uint64_t sequence = 0, number = 0;
    bool in_row = false, done = false;
    Running* next = nullptr;
  };
  class Started;

  void advance(Running& running) {
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
  void wait(Running& running);
  [[noreturn]] WEFT_COLD void refuse(Running& running) {
    const std::string why = running.collective.disagreement();
    if (running.in_row) running.give_up();
    throw MismatchError(process_->rank, axis(), describe(running.collective.call()), running.sequence, why);
  }
  [[noreturn]] WEFT_COLD void time_out(Running& running) {
    const int q = running.collective.missing();
    running.give_up();
    throw TimeoutError(process_->rank, axis(), describe(running.collective.call()), running.sequence,
                       weft::detail::joined({"waited longer than the deadline of ", std::to_string(process_->deadline.count()), " s", q < 0 ? std::string() : weft::detail::joined({" for rank ", q, " of ", axis()}),
                               "; last operations: ", process_->recorder.text()}));
  }
  [[noreturn]] WEFT_COLD void throw_broken(const Running& running) {
    throw AbortedError(process_->rank, axis(), describe(running.collective.call()), running.sequence,
                       "an earlier operation of this communicator has failed on this rank");
  }
  [[noreturn]] WEFT_COLD void abort(Running& running, int lost) {
    running.give_up();
    throw AbortedError(process_->rank, axis(), describe(running.collective.call()), running.sequence, process_->fate(lost));
  }

  std::shared_ptr<Sharing> process_;
  std::shared_ptr<Group> inner_;
  Memory memory_;
  std::vector<Doorbell*> bells_;  // the other ranks'
  Slots slots_;
  IntrusiveList<Running, &Running::next> open_operations_;
  std::uint64_t next_round_ = 1, sequence_ = 0, moves_ = 0;
  bool broken_ = false;
};

/// Spins a little if every rank has a core, and again whenever the group has advanced; then sleeps until another rank rings. A
/// rank that slept between two rounds would make the others wait so long that they sleep too, and every round would take as long
/// as a wake-up. If spinning fails again and again (other programs have left one core for two ranks) it is short, except for one
/// try in eight.
inline void SharedMemoryGroup::wait(Running& running) {
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
      if (turn < most) relax();
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
      const std::chrono::microseconds most(process_->polled != 0 ? 100 : 20000), left(std::int64_t(process_->deadline.count() * 1e6));
      asleep.bell.sleep(std::clamp(left, std::chrono::microseconds(1), most));
    }
    if (advance_all() || (moves_ != seen && spin())) return;
    const auto now = Clock::now();
    const int lost = process_->lost();
    if (lost < 0) noticed = now;
    else if (now - noticed > std::chrono::milliseconds(20)) abort(running, lost);  // what others posted before counts
    if (now - start > process_->deadline) time_out(running);
    if (broken_) throw_broken(running);
  }
}

class SharedMemoryGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<SharedMemoryGroup> group, const Call& call) : group_(std::move(group)), running_(*group_, call) { running_.collective.keep_counts(); }
  bool test() override {
    if (!running_.complete()) {
      expect_alive();
      group_->process_->progress();
    }
    return running_.complete();
  }
  void wait() override {
    if (running_.complete()) return;
    expect_alive();
    group_->wait(running_);
  }
  void abandon() noexcept override {
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

 private:
  /// Throws if the operation failed while this rank waited for another one.
  void expect_alive() {
    if (!running_.collective.disagreement().empty()) group_->refuse(running_);
    if (group_->broken_) group_->throw_broken(running_);
  }
  std::shared_ptr<SharedMemoryGroup> group_;
  Running running_;
};

inline std::unique_ptr<Pending> SharedMemoryGroup::start(const Call& call) {
  if (is_point_to_point(call.operation)) return inner_->start(call);
  auto started = std::make_unique<Started>(shared_from_this(), call);
  progress();
  return started;
}

inline std::shared_ptr<Group> SharedMemoryGroup::over(std::shared_ptr<Sharing> process, std::shared_ptr<Group> inner) {
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
  return std::make_shared<SharedMemoryGroup>(std::move(process), std::move(inner), std::move(memory), std::move(bells));
}

}  // namespace weft::comm::shared_memory
