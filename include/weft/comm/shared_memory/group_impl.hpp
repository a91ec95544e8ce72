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

/// The bytes of another process's heap, or of this one's.
inline std::span<std::byte> bytes_of(const Memory* heap) {
  return heap != nullptr ? std::span(heap->data(), heap->address().bytes)
                         : std::span(Heap::mine()->data(), Heap::mine()->address().bytes);
}

/// The heap of another process, mapped once for all groups with it; null if it cannot be opened.
WEFT_INLINE std::shared_ptr<Memory> find_heap(Sharing& process, const Address& address) {
  std::erase_if(process.heaps, [](const auto& heap) { return heap.expired(); });
  for (const auto& known : process.heaps)
    if (auto heap = known.lock(); heap && std::equal(address.secret, address.secret + 2, heap->address().secret)) return heap;
  Memory found = address.bytes == 0 ? Memory() : Memory::open(address);
  if (!found) return nullptr;
  auto heap = std::make_shared<Memory>(std::move(found));
  process.heaps.push_back(heap);
  return heap;
}

WEFT_INLINE void SharedMemoryGroup::execute(const Call& call) {
  if (is_point_to_point(call.operation)) return inner_->execute(call);
  Running running(*this, call);
  wait(running);
}

WEFT_INLINE std::shared_ptr<Group> SharedMemoryGroup::split(int color, int key, std::string axis) {
  // All ranks are here before any of them waits inside the backend: others may need it for earlier operations.
  execute({.operation = Operation::split, .function = process_->recorder.function()});
  return inner_->split(color, key, std::move(axis));
}

WEFT_INLINE void SharedMemoryGroup::progress() {
  while (Running* running = broken_ ? nullptr : open_operations_.first()) {
    advance(*running);
    if (!running->complete) return;
  }
}

WEFT_INLINE SharedMemoryGroup::Running::Running(SharedMemoryGroup& of, const Call& of_caller)
    : group(of), collective(of.slots_, of_caller, of.heaps_) {
  call = &collective.call();
  of.begin(*this);
  of.open_operations_.append(*this);
  ++of.process_->under_way;
  in_row = true;
}

/// After an operation is given up its buffers may be used for anything, so no other rank may be at work in them. That takes as
/// long as a copy; a rank that has ended there ends the wait. One that is stopped there may go on at any time: then this process
/// is of no more use.
WEFT_INLINE void SharedMemoryGroup::leave_heaps() {
  slots_.leave();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (std::size_t q = 0; q < heap_memories_.size(); ++q)
    while (heap_memories_[q] && slots_.uses_heaps(int(q)) && !process_is_gone(heap_memories_[q]->address().process)) {
      if (std::chrono::steady_clock::now() > limit) return Heap::mine()->expose();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

WEFT_INLINE void SharedMemoryGroup::advance(Running& running) {
  if (!running.collective.begun()) running.collective.begin(next_round_);
  bool posted = false;
  running.collective.advance(posted);
  if (posted) {
    ++moves_;
    for (Doorbell* bell : bells_) bell->ring();
  }
  if (!running.collective.disagreement().empty() || running.collective.gone() >= 0) refuse(running);
  if (!running.collective.complete()) return;
  next_round_ = running.collective.end();
  complete(running);
  running.leave();
}

WEFT_COLD WEFT_INLINE void SharedMemoryGroup::refuse(Running& running) {
  if (running.in_row) running.give_up();
  if (const int q = running.collective.gone(); q >= 0)
    throw_aborted(running, weft::detail::joined({rank_name(q), " has given up an operation of this communicator"}));
  throw_disagreement(running, running.collective.disagreement());
}

WEFT_INLINE void SharedMemoryGroup::expect_usable(const ProcessGroup::Running& running) {
  if (broken_) throw_aborted(running, "an earlier operation of this communicator has failed on this rank");
  if (!heaps_.empty() && Heap::mine()->exposed()) [[unlikely]]
    throw_aborted(running, "a rank that stood still may yet write into tensors of this process, so that this process has to end");
  if (!process_->disturbed()) [[likely]]
    return;
  const int lost = process_->lost();
  throw_aborted(running,
                lost < 0 ? std::string("a connection has delivered bytes that are no valid frame") : process_->fate(lost));
}
WEFT_INLINE std::vector<int> SharedMemoryGroup::awaited(const ProcessGroup::Running&) const {
  std::vector<int> others = members_;
  std::erase(others, process_->rank);
  return others;
}
WEFT_INLINE std::string SharedMemoryGroup::missing(const ProcessGroup::Running& running) const {
  const int q = static_cast<const Running&>(running).collective.missing();
  return q < 0 ? std::string() : rank_name(q);
}

WEFT_INLINE void SharedMemoryGroup::wait(Running& running) {
  try {
    wait_until_complete(running);
  } catch (...) {
    if (running.in_row) running.give_up();
    throw;
  }
}

/// Spins a little if every rank has a core, and again whenever the group has advanced; then sleeps until another rank rings. A
/// rank that slept between two rounds would make the others wait so long that they sleep too, and every round would take as long
/// as a wake-up. If spinning fails again and again (other programs have left one core for two ranks) it is short, except for one
/// try in eight.
WEFT_INLINE void SharedMemoryGroup::wait_until_complete(Running& running) {
  const bool crowded = process().crowded;
  const int spins = crowded ? 20 : 3000, yields = crowded ? 4 : 2;
  const auto advance_all = [&] {
    if (process_->under_way > 1) process_->progress();
    else progress();
    return running.complete;
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
  WaitTimes times;
  struct Asleep {
    Doorbell& bell;
    explicit Asleep(Doorbell& b) : bell(b) { bell.lie_down(); }
    ~Asleep() { bell.get_up(); }
  };
  while (!running.complete) {
    {
      const Asleep asleep(process().bells->mine());
      if (advance_all()) return;
      // No doorbell rings for messages through the backend: poll them often.
      const std::chrono::microseconds most(process_->polled != 0 ? 100 : 20000),
          left(std::int64_t(process_->deadline.count() * 1e6));
      asleep.bell.sleep(std::clamp(left, std::chrono::microseconds(1), most));
    }
    if (advance_all() || (moves_ != seen && spin())) return;
    check_wait(running, times);
    if (broken_) expect_usable(running);
  }
}

WEFT_INLINE void SharedMemoryGroup::Started::require_usable() {
  try {
    group_->expect_usable(running_);
  } catch (...) {  // no failed operation touches a buffer any more
    if (running_.in_row) running_.give_up();
    throw;
  }
}

WEFT_INLINE bool SharedMemoryGroup::Started::test() {
  if (running_.complete) return true;
  if (!running_.collective.disagreement().empty() || running_.collective.gone() >= 0) group_->refuse(running_);
  require_usable();
  group_->process_->progress();
  return running_.complete;
}

WEFT_INLINE void SharedMemoryGroup::Started::wait() {
  if (running_.complete) return;
  if (!running_.collective.disagreement().empty() || running_.collective.gone() >= 0) group_->refuse(running_);
  require_usable();
  group_->wait(running_);
}

WEFT_INLINE void SharedMemoryGroup::Started::abandon() noexcept {
  if (running_.complete || !running_.in_row) return;
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

WEFT_INLINE std::shared_ptr<Group> SharedMemoryGroup::over(std::shared_ptr<Sharing> process, std::shared_ptr<PolledGroup> inner,
                                                           std::uint64_t channel, std::vector<int> members) {
  const auto n = std::size_t(inner->size());
  const auto exchange = [&](const std::uint64_t* mine, std::size_t words, std::uint64_t* all) {
    inner->execute({.operation = Operation::all_gather, .type = DataType::uint64, .count = words, .input = mine, .output = all});
  };
  struct Offer {
    Address bell, slots, heap;
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
    if (const Heap* const heap = Heap::mine()) mine.heap = heap->address();
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
  std::vector<std::shared_ptr<Memory>> heaps;
  for (std::size_t q = 0; good != 0 && q < n; ++q) {
    heaps.push_back(q == std::size_t(inner->rank()) ? nullptr : find_heap(*process, offers[q].heap));
    if (offers[q].heap.bytes == 0 || (q != std::size_t(inner->rank()) && !heaps.back())) {
      heaps.clear();
      break;
    }
  }
  const std::uint64_t found[] = {good, good != 0 && !heaps.empty()};
  std::vector<std::uint64_t> all(2 * n);
  exchange(found, 2, all.data());
  bool here = true;
  for (std::size_t q = 0; q < n; ++q) {
    here = here && all[2 * q] != 0;
    if (all[2 * q + 1] == 0) heaps.clear();
  }
  if (cores.count() < int(n) && (here || !process->shares)) process->crowded = true;
  if (!here) return inner;
  memory.close();
  if (!heaps.empty()) {
    std::vector<std::span<std::byte>> places;
    for (const auto& heap : heaps) places.push_back(bytes_of(heap.get()));
    inner->set_heaps({std::move(places), inner->rank(), std::make_shared<const std::vector<std::shared_ptr<Memory>>>(heaps)});
  }
  return std::make_shared<SharedMemoryGroup>(std::move(process), std::move(inner), channel, std::move(members), std::move(memory),
                                             std::move(bells), std::move(heaps));
}

}  // namespace weft::comm::shared_memory
