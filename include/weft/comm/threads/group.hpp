// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of thread ranks: one object for each rank and communicator, over slots and mailboxes that its ranks share.

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
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

/// The state that the ranks of one communicator share.
struct Shared {
  Shared(std::shared_ptr<World> w, std::vector<int> m, std::string a, std::uint64_t n)
      : world(std::move(w)),
        number(n),
        members(std::move(m)),
        axis(std::move(a)),
        exchange(int(members.size())),
        mailboxes(members.size()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  /// Fails the world if a message was sent and never received: the communicator ends here.
  WEFT_INLINE ~Shared();
  void expect_all_received();

  std::shared_ptr<World> world;
  std::uint64_t number;      ///< new to every rank that gets it
  std::vector<int> members;  ///< their numbers in the world
  std::string axis;
  Exchange exchange;
  std::vector<Mailbox> mailboxes;

  /// The part with this number and color, kept until all its ranks have joined and one of them releases it.
  std::shared_ptr<Shared> part(std::uint64_t its_number, int color, const std::vector<int>& its_members,
                               const std::string& its_axis);
  void forget_part(std::uint64_t its_number, int color);

 private:
  struct Part {
    std::uint64_t number;
    int color;
    std::shared_ptr<Shared> shared;
    std::unique_ptr<Part> next;
  };
  std::mutex mutex;
  std::unique_ptr<Part> parts;
};

class ThreadGroup final : public Group, public std::enable_shared_from_this<ThreadGroup> {
 public:
  ThreadGroup(std::shared_ptr<Shared> shared, int rank)
      : shared_(std::move(shared)),
        world_(*shared_->world),
        rank_(rank),
        world_rank_(shared_->members[std::size_t(rank)]),
        flight_(self().recorder.open(shared_->axis, shared_->members, shared_->number)) {}

  WEFT_INLINE int rank() const override;
  WEFT_INLINE int size() const override;
  WEFT_INLINE std::string_view axis() const override;
  WEFT_INLINE std::string_view backend() const override;
  WEFT_INLINE bool supports(Operation, DataType, MemoryKind memory) const override;
  Flight flight() override { return {&self().recorder, flight_.get()}; }

  WEFT_INLINE void execute(const Call& call) override;

  // `inline` here: otherwise the first of these functions is the key function, and every file that includes this one emits the
  // class.
  WEFT_INLINE std::unique_ptr<Pending> start(const Call& call) override;
  WEFT_INLINE std::shared_ptr<Group> split(int color, int key, std::string axis) override;

 private:
  class Started;
  class SlotFree;

  Rank& self() { return world_.rank(world_rank_); }

  std::uint64_t begin(const Call& call);

  Send post_send(const Call& call);

  /// The number of the next collective, once its slot is free.
  std::uint64_t next_collective(const Call& call);

  /// The oldest collective of this group that this rank has not finished, or `next`.
  std::uint64_t oldest_open(std::uint64_t next);

  /// Throws unless the wait ended well.
  void require_done(World::Outcome outcome, const Call& call) {
    if (outcome == World::Outcome::done && !world_.failed()) return;
    fail(outcome, call);
  }
  void fail(World::Outcome outcome, const Call& call);
  void wait(Advancing& operation, const Call& call) {
    const World::Outcome outcome = world_.wait(world_rank_, operation);
    if (outcome == World::Outcome::interrupted) interrupt(call, operation.waits_for());
    require_done(outcome, call);
  }
  // The process was asked to stop: `missing` is the rank that an operation waits for; itself if it does not begin.
  void interrupt(const Call& call, int missing);

  std::shared_ptr<Shared> shared_;
  World& world_;
  int rank_, world_rank_;
  std::shared_ptr<FlightRecorder::Line> flight_;
  std::uint64_t sequence_ = 0;     // counts all operations, for messages
  std::uint64_t collectives_ = 0;  // counts operations that use slots: the same on every rank
  std::uint64_t known_open_ = 0;   // all ranks have finished the collectives below this one
  IntrusiveList<Collective, &Collective::next_open> open_;
};

// A wait for a free slot: a slot may be used again once every rank has finished with its content.
class ThreadGroup::SlotFree final : public Advancing {
 public:
  SlotFree(Exchange& exchange, std::uint64_t sequence) : exchange_(exchange), sequence_(sequence) {}
  WEFT_INLINE bool advance() override;

 private:
  Exchange& exchange_;
  std::uint64_t sequence_;
};

/// The handle of a started operation: keeps it in its rank's list until it is complete.
class ThreadGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<ThreadGroup> group, std::unique_ptr<Advancing> operation, Collective* collective, const Call& call,
          std::uint64_t number)
      : group_(std::move(group)), operation_(std::move(operation)), collective_(collective), call_(call), number_(number) {
    if (!operation_->complete()) group_->self().under_way.append(*operation_);
    if (collective_ != nullptr) group_->open_.append(*collective_);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  WEFT_INLINE ~Started() override;

  WEFT_INLINE bool test() override;
  WEFT_INLINE void wait() override;
  WEFT_INLINE void abandon() noexcept override;

 private:
  bool completed() {
    if (operation_->complete()) group_->self().recorder.complete(number_);
    return operation_->complete();
  }

  std::shared_ptr<ThreadGroup> group_;
  std::unique_ptr<Advancing> operation_;
  Collective* collective_;  // the operation, if it is a collective
  Call call_;
  std::uint64_t number_;
};

}  // namespace weft::comm::threads

#ifndef WEFT_COMPILED
#include <weft/comm/threads/group_impl.hpp>
#endif
