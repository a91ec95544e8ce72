// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of processes of one machine: collectives through shared memory, messages between two ranks through the group of the
// backend that started the processes. It is used if all ranks of a group can open each other's memory; WEFT_SHARED_MEMORY=0 turns
// it off.

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/intrusive_list.hpp>
#include <weft/comm/polled_group.hpp>
#include <weft/comm/process_group.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/comm/shared_memory/collective.hpp>
#include <weft/comm/shared_memory/doorbell.hpp>
#include <weft/comm/shared_memory/heap.hpp>
#include <weft/comm/shared_memory/memory.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/relax.hpp>

namespace weft::comm::shared_memory {

/// The doorbells known to this process: its own, and those of the processes with which it has a group.
class Bells {
 public:
  Bells() { memories_.push_back(Memory::create(sizeof(Doorbell))); }
  const Address& own() const { return memories_.front().address(); }
  explicit operator bool() const { return bool(memories_.front()); }
  /// Null if it cannot be opened.
  Doorbell* find(const Address& address);
  Doorbell& mine() const { return *bell_of(memories_.front()); }

 private:
  static Doorbell* bell_of(const Memory& memory) { return reinterpret_cast<Doorbell*>(memory.data()); }
  std::vector<Memory> memories_;
};

/// A Process whose groups may share memory.
struct Sharing : Process {
  using Process::Process;
  bool shares = runtime::detail::switch_from_environment("WEFT_SHARED_MEMORY", true);
  std::unique_ptr<Bells> bells;
  std::vector<std::weak_ptr<Memory>> heaps;  ///< of other processes, while a group reads them
  bool crowded = false;                      ///< the ranks on this machine outnumber their cores
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

class SharedMemoryGroup final : public ProcessGroup, public std::enable_shared_from_this<SharedMemoryGroup> {
 public:
  /// `inner` with its collectives through shared memory, or `inner` itself if memory cannot be shared. Collective over it.
  /// `channel`: its number among the process's accounts of calls. `members`: the ranks' numbers in the world.
  static std::shared_ptr<Group> over(std::shared_ptr<Sharing> process, std::shared_ptr<PolledGroup> inner, std::uint64_t channel,
                                     std::vector<int> members);

  SharedMemoryGroup(std::shared_ptr<Sharing> process, std::shared_ptr<Group> inner, std::uint64_t channel,
                    std::vector<int> members, Memory memory, std::vector<Doorbell*> bells,
                    std::vector<std::shared_ptr<Memory>> heaps)
      : ProcessGroup(std::move(process), channel, std::move(members), std::string(inner->axis()), inner->backend()),
        inner_(std::move(inner)),
        memory_(std::move(memory)),
        bells_(std::move(bells)),
        heap_memories_(std::move(heaps)),
        slots_(memory_.data(), rank(), size()) {
    for (const auto& heap : heap_memories_)
      heaps_.emplace_back(heap ? heap->data() : Heap::mine()->data(),
                          heap ? heap->address().bytes : Heap::mine()->address().bytes);
  }

  WEFT_INLINE void execute(const Call& call) override;
  WEFT_INLINE std::unique_ptr<Pending> start(const Call& call) override;
  WEFT_INLINE std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  WEFT_INLINE void progress() override;
  const weft::detail::BlockSource* shared_blocks() const override { return heaps_.empty() ? nullptr : &Heap::blocks; }

 private:
  /// An operation, in the group's list from its start until it is complete. Operations advance in the order of their starts.
  struct Running : ProcessGroup::Running {
    Running(SharedMemoryGroup& of, const Call& call);
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      if (in_row) give_up();
    }
    void leave() {
      group.open_operations_.remove(*this);
      --group.process_->under_way;
      in_row = false;
    }
    /// Ends the operation early; it touches no buffer any more. The group is broken: its rounds no longer match those of the
    /// other ranks.
    void give_up() {
      group.leave_heaps();
      leave();
      group.broken_ = true;
    }

    SharedMemoryGroup& group;
    Collective collective;
    bool in_row = false;
    Running* next = nullptr;
  };
  class Started;

  Sharing& process() const { return static_cast<Sharing&>(*process_); }
  void advance(Running& running);
  void wait(Running& running);
  void wait_until_complete(Running& running);
  WEFT_INLINE void leave_heaps();
  [[noreturn]] void refuse(Running& running);
  WEFT_INLINE void expect_usable(const ProcessGroup::Running& running) override;
  WEFT_INLINE std::vector<int> awaited(const ProcessGroup::Running& running) const override;
  WEFT_INLINE std::string missing(const ProcessGroup::Running& running) const override;

  std::shared_ptr<Group> inner_;
  Memory memory_;
  std::vector<Doorbell*> bells_;                        // the other ranks'
  std::vector<std::shared_ptr<Memory>> heap_memories_;  // by rank, null for this one; empty if the heaps are not shared
  std::vector<std::span<std::byte>> heaps_;
  Slots slots_;
  IntrusiveList<Running, &Running::next> open_operations_;
  std::uint64_t next_round_ = 1, moves_ = 0;
  bool broken_ = false;
};

class SharedMemoryGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<SharedMemoryGroup> group, const Call& call) : group_(std::move(group)), running_(*group_, call) {
    running_.collective.keep_counts();
  }
  WEFT_INLINE bool test() override;
  WEFT_INLINE void wait() override;
  WEFT_INLINE void abandon() noexcept override;

 private:
  WEFT_INLINE void require_usable();

  std::shared_ptr<SharedMemoryGroup> group_;
  Running running_;
};

}  // namespace weft::comm::shared_memory

#ifndef WEFT_COMPILED
#include <weft/comm/shared_memory/group_impl.hpp>
#endif
