// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of processes whose operations advance only while the rank calls into weft: over MPI and over TCP. It keeps the list of
// started operations, waits for them with a deadline, and ends those that fail. A transport adds how one operation starts,
// advances and is taken back.
//
//   class MyGroup final : public PolledGroup {
//     std::shared_ptr<Running> make(const Call& call, std::uint64_t step) override;   // a struct derived from Running
//     void launch(Running& running) override;
//     bool advance(Running& running) override;                                        // true once complete
//     ...

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/process_group.hpp>
#include <weft/comm/shared_memory/peer_heaps.hpp>

namespace weft::comm {

class PolledGroup : public ProcessGroup, public std::enable_shared_from_this<PolledGroup> {
 public:
  ~PolledGroup() override { count(-long(under_way_.size())); }

  void execute(const Call& call) override {
    if (const auto pending = start(call)) pending->wait();
  }
  WEFT_INLINE std::unique_ptr<Pending> start(const Call& call) final;
  WEFT_INLINE void progress() override;
  /// From now on long messages are read in the senders' heaps.
  void set_heaps(shared_memory::PeerHeaps heaps) { heaps_ = std::move(heaps); }

 protected:
  struct Running : ProcessGroup::Running {
    virtual ~Running() = default;
    bool launched = true;   ///< false while the ranks still compare their calls
    bool given_up = false;  ///< it has failed, and touches no buffer any more
  };
  using ProcessGroup::ProcessGroup;

  /// An operation with its own copy of the call, to which `call` points; not launched. `step`: its number in the ledger.
  virtual std::shared_ptr<Running> make(const Call& call, std::uint64_t step) = 0;
  virtual void launch(Running& running) = 0;
  /// Advances without waiting; true once complete. Throws the operation's error.
  virtual bool advance(Running& running) = 0;
  /// Returns when the operation may have advanced, or after about a millisecond.
  virtual void pause(const Running& running, Clock::duration waited) = 0;
  /// Takes the caller's buffers back from an operation that ends early. It is kept until the transport no longer needs its
  /// memory.
  virtual void take_back(std::shared_ptr<Running> running) = 0;
  /// Throws the error of a completed operation that received something else than expected.
  virtual void expect_whole(const Running&) {}
  /// Polls of a wait before it pauses.
  virtual int spins() const { return 1; }

  /// Adds an operation whose begin is recorded.
  void add(std::shared_ptr<Running> running, const ProcessGroup::Running& begun);
  void wait(Running& running);
  void give_up(Running& running);
  void give_up_all() {
    while (!under_way_.empty()) give_up(*under_way_.back());
  }
  const shared_memory::PeerHeaps& heaps() const { return heaps_; }

 private:
  class Started;
  void count(long operations) {
    process_->under_way += std::size_t(operations);
    process_->polled += std::size_t(operations);
  }

  std::vector<std::shared_ptr<Running>> under_way_;
  shared_memory::PeerHeaps heaps_;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/polled_group_impl.hpp>
#endif
