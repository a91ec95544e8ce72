// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of ranks with a GPU each. Device memory goes through NCCL; host memory, barriers and everything on which ranks must
// agree go through the host backend's group of the same ranks, over which they met (threads, MPI or TCP). Nothing
// is copied between the two kinds of memory without the caller's knowledge.

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/comm/nccl/pair.hpp>
#include <weft/comm/stop.hpp>

namespace weft::comm::nccl {

class NcclGroup final : public Group, public std::enable_shared_from_this<NcclGroup> {
 public:
  /// `comm`: the finished communicator of these ranks, or null for a group of one. `host` and `control`: two groups of the same
  /// ranks in the same order.
  NcclGroup(std::shared_ptr<Process> process, std::shared_ptr<Comm> comm, std::shared_ptr<Group> host,
            std::shared_ptr<Group> control, std::string axis)
      : process_(std::move(process)),
        comm_(std::move(comm)),
        host_(std::move(host)),
        control_(std::move(control)),
        axis_(std::move(axis)) {
    flight_ = host_->flight().line;
    if (const int alone[] = {process_->rank()}; flight_ == nullptr) {
      alone_ = process_->recorder->open(axis_, alone, 0);
      flight_ = alone_.get();
    }
    std::lock_guard lock(process_->mutex);
    process_->groups.push_back(this);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override {
    std::lock_guard lock(process_->mutex);
    std::erase(process_->groups, this);
    pairs_.clear();
    process_->retire(comm_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return "nccl"; }
  bool supports(Operation operation, DataType type, MemoryKind memory) const override {
    if (memory == MemoryKind::host || operation == Operation::barrier) return host_->supports(operation, type, MemoryKind::host);
    return !reduces(operation) || reducible(type);
  }

  Flight flight() override { return {process_->recorder, flight_}; }

  void execute(const Call& call) override {
    if (on_host(call) && idle()) {
      require_unbroken(call);
      host_->execute(call);
      return require_unbroken(call);  // the watching thread may have found a failure meanwhile
    }
    if (auto pending = start(call)) pending->wait();
  }
  inline std::unique_ptr<Pending> start(const Call& call) override;
  void check() override { require_unbroken({.operation = Operation::barrier}); }
  void watch(const StreamOrder& order) override {
    check();
    std::lock_guard lock(process_->mutex);
    if (order.stream != nullptr) process_->watch(static_cast<cudaStream_t>(order.stream(order.instance)));
  }
  inline std::shared_ptr<Group> split(int color, int key, std::string axis) override;

  /// The part of Process::finish for messages.
  void finish_launched();

 private:
  class Started;
  class OnHost;

  static bool on_host(const Call& call) { return call.memory == MemoryKind::host || call.operation == Operation::barrier; }
  bool idle() {
    std::lock_guard lock(process_->mutex);
    bool idle = process_->idle();
    for (const NcclGroup* group : process_->groups)
      for (const auto& [peer, pair] : group->pairs_) idle = idle && pair->idle();
    return idle;
  }
  static void advance_everything(Process& process) {
    process.advance(process.collectives);
    const auto groups = process.groups;
    for (NcclGroup* group : groups)
      for (const auto& [peer, pair] : group->pairs_) pair->advance();
    process.look();
  }
  /// Advances every operation that can advance, and notices a failed rank of the host backend.
  void advance(const Running& running) {
    if (process_->failed()) process_->refuse(running);
    try {
      process_->look_around();
    } catch (const std::exception& error) {
      std::string text = error.what();  // of the alarm, whose own rank, axis and number mean nothing
      if (const auto at = text.find("#1: "); at != std::string::npos) text.erase(0, at + 4);
      process_->fail<AbortedError>(running, text);
    }
    advance_everything(*process_);
  }
  /// Advances everything until `done()`, at most until the deadline. Spins briefly, then sleeps a little between polls.
  template <class F>
  void until(const Running& running, F&& done) {
    const auto start = Clock::now();
    for (unsigned turn = 0;; ++turn) {
      {
        std::lock_guard lock(process_->mutex);
        if (running.stage == Running::Stage::complete) return;
        if (process_->failed()) process_->refuse(running);  // before `done`: an aborted operation has no result
        if (done()) return;
        advance(running);
        if (done()) return;
        if (Clock::now() - start > process_->deadline()) process_->too_late(running);
        if (comm::detail::wait_must_end(start)) {
          process_->interrupt(running);
          process_->refuse(running);
        }
      }
      if (turn < 200) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  void wait(Running& running) {
    using enum Running::Stage;
    if (!running.on_stream) return until(running, [&] { return running.stage == complete; });
    until(running, [&] { return running.stage == flying || running.stage == complete; });
    let_stream_wait(running);
  }
  void let_stream_wait(Running& running) {
    std::lock_guard lock(process_->mutex);
    if (!running.on_stream) return;
    if (running.stage != Running::Stage::complete && process_->failed()) process_->refuse(running);
    running.on_stream = false;
    if (!running.after) return;  // done already
    process_->guarded(running, [&] { running.after->hold_back(running.stream); });
    process_->watch();
  }
  void start_check(Running& running);
  /// Throws if communication has failed: the results on this rank's GPU are invalid, even if the host's ranks are well.
  void require_unbroken(const Call& call) {
    std::lock_guard lock(process_->mutex);
    if (process_->failed()) process_->refuse(Running(call, axis_, rank(), size(), sequence_, 0));
  }

  std::shared_ptr<Process> process_;
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Group> host_, control_;
  std::string axis_;
  FlightRecorder::Line* flight_;                 // the host's
  std::shared_ptr<FlightRecorder::Line> alone_;  // of a group of one, which the host keeps no record of
  std::uint64_t sequence_ = 0;
  std::map<int, std::unique_ptr<Pair>> pairs_;
};

class NcclGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<NcclGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  /// Never makes a stream wait: callers test for progress, long before they need the result.
  bool test() override {
    using enum Running::Stage;
    std::lock_guard lock(group_->process_->mutex);
    if (running_->stage != complete) group_->advance(*running_);
    return running_->stage == complete;
  }
  void wait() override { group_->wait(*running_); }
  void abandon() noexcept override {
    if (leave(std::uncaught_exceptions() > 0)) return;
    try {
      wait();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      leave(true);
    }
  }

 private:
  /// True if nothing is left to wait for: the operation is complete, or communication has failed and this rank's GPU touches no
  /// buffer any more.
  bool leave(bool failing) noexcept {
    std::lock_guard lock(group_->process_->mutex);
    if (running_->stage == Running::Stage::complete) return true;
    if (failing && !group_->process_->failed()) group_->process_->abort(*running_, "the rank left it with an exception");
    if (!group_->process_->failed()) return false;
    for (const auto& [peer, pair] : group_->pairs_) pair->give_up();
    return true;
  }

  std::shared_ptr<NcclGroup> group_;
  std::shared_ptr<Running> running_;
};

/// An operation of the host backend that keeps this rank's other operations advancing.
class NcclGroup::OnHost final : public Pending {
 public:
  OnHost(std::shared_ptr<NcclGroup> group, const Call& call, std::unique_ptr<Pending> pending, std::uint64_t sequence)
      : group_(std::move(group)),
        running_(call, group_->axis_, group_->rank(), group_->size(), sequence, 0),
        pending_(std::move(pending)) {}
  bool test() override {
    if (pending_ && pending_->test()) pending_.reset();
    if (pending_) advance();
    else group_->require_unbroken(running_.call);
    return !pending_;
  }
  void wait() override {
    const auto start = Clock::now();
    for (unsigned turn = 0; !test(); ++turn) {
      if (group_->idle()) {
        pending_->wait();
        pending_.reset();
        return group_->require_unbroken(running_.call);
      }
      if (Clock::now() - start > group_->process_->deadline()) {
        std::lock_guard lock(group_->process_->mutex);
        group_->process_->too_late(running_);
      }
      if (comm::detail::wait_must_end(start)) {
        std::lock_guard lock(group_->process_->mutex);
        group_->process_->interrupt(running_);
        group_->process_->refuse(running_);
      }
      if (turn < 200) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  void abandon() noexcept override {
    if (pending_) pending_->abandon();
  }

 private:
  void advance() {
    std::lock_guard lock(group_->process_->mutex);
    group_->advance(running_);
  }
  std::shared_ptr<NcclGroup> group_;
  Running running_;
  std::unique_ptr<Pending> pending_;
};

inline std::unique_ptr<Pending> NcclGroup::start(const Call& call) {
  if (call.tag < 0) throw_error<UsageError>({name_of(call.operation), ": tag ", call.tag, " is negative"});
  ++sequence_;
  if (on_host(call)) {
    require_unbroken(call);
    auto pending = host_->start(call);
    if (!pending) {
      require_unbroken(call);
      return nullptr;
    }
    return std::make_unique<OnHost>(shared_from_this(), call, std::move(pending), sequence_);
  }
  if (call.order.stream == nullptr) call.order.fence();
  std::lock_guard lock(process_->mutex);
  const std::uint64_t number = process_->recorder->begin(*flight_, sequence_, call);
  auto running = std::make_shared<Running>(call, axis_, rank(), size(), sequence_, number);
  if (process_->failed()) process_->refuse(*running);
  bool recorded = false;
  process_->guarded(*running, [&] {
    if (call.order.stream != nullptr) {
      running->on_stream = true;
      running->stream = static_cast<cudaStream_t>(call.order.stream(call.order.instance));
      running->before = process_->event();
      running->before->record(running->stream);
      recorded = gpu::is_recorded(running->stream);
    }
    if (!is_point_to_point(call.operation)) running->comm = comm_;
    if (recorded) return;
    if (is_point_to_point(call.operation)) {
      auto& pair = pairs_[call.root];
      if (!pair) pair = std::make_unique<Pair>(*process_, control_, call.root);
      pair->post(running);
    } else {
      if (process_->fingerprints() && size() > 1) start_check(*running);
      process_->collectives.waiting.push_back(running);
    }
  });
  if (recorded) process_->record(running);
  else advance(*running);
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

inline void NcclGroup::finish_launched() {
  for (;;) {
    std::shared_ptr<Running> running;
    {
      std::lock_guard lock(process_->mutex);
      if (process_->failed()) return;  // aborted: nothing is on the GPU
      running = process_->launched();
      for (const NcclGroup* group : process_->groups)
        for (const auto& [peer, pair] : group->pairs_)
          if (!running) running = pair->issuing();
      if (!running) return;
      if (std::uncaught_exceptions() > 0) return process_->abort(*running, "the rank left it with an exception");
      process_->frees = true;
    }
    const struct Freed {
      Process& process;
      ~Freed() {
        std::lock_guard lock(process.mutex);
        process.frees = false;
      }
    } freed{*process_};
    until(*running, [&] { return running->stage == Running::Stage::complete; });
  }
}

inline void Process::finish() {
  std::unique_lock lock(mutex);
  NcclGroup* const any = groups.empty() ? nullptr : groups.front();
  lock.unlock();
  if (any != nullptr) any->finish_launched();
}

inline void NcclGroup::start_check(Running& running) {
  std::uint64_t counts = 0;
  if (running.call.operation != Operation::all_to_all_v)
    for (const std::size_t count : running.call.receive_counts) counts = counts * 1000003 + count;
  running.fingerprint = {signature(running.call), running.call.count, counts};
  running.fingerprints.resize(running.fingerprint.size() * std::size_t(size()));
  running.stage = Running::Stage::checking;
  running.check = control_->start({.operation = Operation::all_gather,
                                   .type = DataType::uint64,
                                   .count = running.fingerprint.size(),
                                   .input = running.fingerprint.data(),
                                   .output = running.fingerprints.data()});
}

inline std::shared_ptr<Group> NcclGroup::split(int color, int key, std::string axis) {
  // All ranks are here before the host's ranks split, which block: until then each may need this one to go on.
  if (const auto here = start({.operation = Operation::barrier})) here->wait();
  const std::shared_ptr<Group> host = host_->split(color, key, axis), control = host_->split(color, key, axis);
  auto comm = std::shared_ptr<Comm>();
  if (host->size() > 1) {
    const ncclUniqueId id = shared_id(Communicator(host));
    const Running splitting({.operation = Operation::split}, axis_, rank(), size(), ++sequence_, 0);
    {
      std::lock_guard lock(process_->mutex);
      comm = process_->adopt();
      process_->guarded(splitting, [&] { comm->connect(host->size(), id, host->rank()); });
    }
    until(splitting, [&] {
      return process_->guarded(splitting, [&] {
        const ncclResult_t state = comm->state();
        if (state != ncclInProgress) nccl::check(state, "ncclCommInitRankConfig", comm->get());
        return state == ncclSuccess;
      });
    });
  }
  return std::make_shared<NcclGroup>(process_, std::move(comm), host, control, std::move(axis));
}

}  // namespace weft::comm::nccl
