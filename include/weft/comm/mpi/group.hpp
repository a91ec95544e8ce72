// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of MPI processes. Every wait polls, so that it has a deadline and advances every operation that this rank has
// started.

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/mpi/comparison.hpp>
#include <weft/comm/mpi/transfer.hpp>
#include <weft/comm/mpi/watch.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::mpi {

class MpiGroup final : public Group, public Progress, public std::enable_shared_from_this<MpiGroup> {
 public:
  /// Takes ownership of `main`. Collective over it.
  MpiGroup(std::shared_ptr<Process> process, Handle main, std::string axis)
      : process_(std::move(process)),
        main_(std::move(main)),
        steps_(Handle::duplicate(main_.get())),
        checks_(Handle::duplicate(main_.get())),
        axis_(std::move(axis)) {
    mpi::check(MPI_Comm_rank(main_.get(), &rank_), "MPI_Comm_rank");
    mpi::check(MPI_Comm_size(main_.get(), &size_), "MPI_Comm_size");
    std::uint64_t number = process_->next_group;  // new to every rank that gets it
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_UINT64_T, MPI_MAX, main_.get()), "MPI_Allreduce");
    process_->next_group = number + 1;
    ledger_ = process_->watch->open(2 * number, axis_);
    members_ = ranks_in(process_->world, main_.get(), size_);
    flight_ = process_->recorder.open(axis_, members_, ledger_->channel());
    process_->groups.push_back(this);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override {
    while (!under_way_.empty()) give_up(*under_way_.back());
    if (gave_up_)
      for (Handle* handle : {&main_, &steps_, &checks_}) handle->leave();
    std::erase(process_->groups, this);
  }

  /// Its number among the communicators of the process, and its ranks' numbers in the world.
  std::uint64_t number() const { return ledger_->channel() / 2; }
  const std::vector<int>& members() const { return members_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return "mpi"; }
  bool supports(Operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host; }

  Flight flight() override { return {&process_->recorder, flight_.get()}; }

  void execute(const Call& call) override {
    if (is_point_to_point(call.operation)) return send_or_receive(call);
    if (auto pending = start(call)) pending->wait();
  }
  std::unique_ptr<Pending> start(const Call& call) override;
  std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  void end() override {
    Group::end();
    if (const std::string why = process_->watch->unreceived(*this); !why.empty())
      throw MismatchError(process_->rank, axis(), "the end of the program", sequence_, why);
  }
  void progress() override {
    if (under_way_.empty() || !leftovers().writes.empty()) return;
    bool earlier_waits = false, ended = false;  // collectives start in one order on all ranks
    for (const auto& running : under_way_) {
      if (running->complete) continue;
      if (earlier_waits && !running->transfer.launched() && !is_point_to_point(running->transfer.call().operation)) continue;
      guarded(*running, [&] { advance(*running); });
      earlier_waits |= !running->transfer.launched();
    }
    for (const auto& running : under_way_) ended |= running->complete;
    if (ended) count(-long(std::erase_if(under_way_, [](const auto& running) { return running->complete; })));
  }

 private:
  class Started;
  void count(long operations) {
    process_->under_way += std::size_t(operations);
    process_->polled += std::size_t(operations);
  }

  /// An operation from start to end.
  struct Running {
    Running(const Place& place, const Call& call, int tag, std::uint64_t of_kind, bool checks, std::uint64_t s, std::uint64_t n)
        : transfer(place, call, tag, of_kind, checks), sequence(s), number(n), step(of_kind) {}
    Transfer transfer;
    std::uint64_t sequence, number, step;  // the last one: its number among the collectives, or messages, of its kind
    std::optional<Comparison> comparison;  // until the ranks are known to agree
    std::unique_ptr<Watch::Wait> long_wait;
    bool complete = false;
  };

  bool advance(Running& running) {
    if (!running.transfer.launched()) {
      if (running.comparison) {
        if (!running.comparison->test()) return false;
        if (const std::string why = running.comparison->difference(axis_); !why.empty())
          disagree(running.transfer.call(), running.sequence, why);
        running.comparison.reset();
      }
      running.transfer.launch();
    }
    if (!running.transfer.test()) return false;
    running.complete = true;
    process_->recorder.complete(running.number);
    return true;
  }
  /// Runs f; errors of MPI get the name of the operation.
  template <class F>
  void guarded(const Running& running, F&& f) {
    guarded(running.transfer.call(), running.sequence, f);
  }
  template <class F>
  void guarded(const Call& call, std::uint64_t sequence, F&& f) {
    try {
      f();
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error& error) {
      throw CommunicationError(process_->rank, axis_, describe(call), sequence, error.what());
    }
  }
  void wait(Running& running);
  void poll(Running& running);
  /// The operation ends here, before it is complete: what MPI may still touch of it is left to MPI.
  WEFT_COLD void give_up(Running& running) {
    const auto at =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& other) { return other.get() == &running; });
    if (at == under_way_.end()) return;
    leave_buffers(running.transfer.call(), running.transfer);
    leftovers().memory.push_back(*at);
    under_way_.erase(at);
    count(-1);
  }
  /// Takes the caller's buffers back from a Transfer or Message, or says that MPI has them.
  template <class T>
  WEFT_COLD void leave_buffers(const Call& call, T& operation) {
    gave_up_ = true;
    Leftovers& left = leftovers();
    if (!left.writes.empty()) return;  // not one more turn of MPI
    const bool writes = !operation.take_back();
    if (writes) left.writes = weft::detail::joined({describe(call), " on axis ", axis_});
    else if (operation.reads()) left.reads = weft::detail::joined({describe(call), " on axis ", axis_});
  }
  void expect_no_leftovers(const Call& call, std::uint64_t sequence) const {
    if (!leftovers().writes.empty()) [[unlikely]]
      throw_leftovers(call, sequence);
  }
  [[noreturn]] WEFT_COLD void throw_leftovers(const Call& call, std::uint64_t sequence) const {
    throw AbortedError(process_->rank, axis_, describe(call), sequence,
                       leftovers().writes +
                           " was under way on this rank when an error came, and MPI cannot take it back: it may still touch "
                           "those buffers, so that this process has to end, and calls nothing of MPI but MPI_Abort");
  }
  void expect_whole(const Running& running) {
    if (const Message* message = running.transfer.message()) expect_whole(running.transfer.call(), running.sequence, *message);
  }
  void expect_whole(const Call& call, std::uint64_t sequence, const Message& message) {
    if (!message.mismatch()) return;
    disagree(call, sequence,
             weft::detail::joined(
                 {"rank ", call.root, " of ", axis_, " sent ", message.found().count, " ",
                  name_of(DataType(message.found().type)), ", ", call.count, " ", name_of(call.type), " were expected",
                  functions_of(weft::detail::joined({"rank ", call.root, " of ", axis_}), message.found().function,
                               weft::detail::joined({"rank ", rank_, " of ", axis_}), signature(call))}));
  }
  [[noreturn]] WEFT_COLD void disagree(const Call& call, std::uint64_t sequence, const std::string& why) {
    process_->watch->accuse(ledger_->channel(),
                            weft::detail::joined({"rank ", process_->rank, ", ", describe(call), " on ", axis_, ": ", why}));
    throw MismatchError(process_->rank, axis_, describe(call), sequence, why);
  }
  void look(Running& running);
  /// Checks the call and records its begin; returns its number in the flight recorder.
  std::uint64_t begin(const Call& call) {
    call.order.fence();
    if (call.tag < 0 || call.tag >= tags)
      throw UsageError(std::string(name_of(call.operation)) + ": tag " + std::to_string(call.tag) + " is not in [0, " +
                       std::to_string(tags) + ")");
    ++sequence_;
    expect_no_leftovers(call, sequence_);
    comm::detail::expect_no_stop(process_->rank, axis_, call, sequence_);
    process_->watch->tidy();
    return process_->recorder.begin(*flight_, sequence_, call);
  }
  void send_or_receive(const Call& call);
  std::uint64_t message_number(const Call& call) {
    return ledger_->message(call.operation == Operation::send, members_[std::size_t(call.root)], call);
  }
  Place place() const { return {main_.get(), steps_.get(), checks_.get(), rank_, size_}; }
  // Spinning pays only if the awaited process has a core of its own.
  int spins() const { return process_->crowded ? 10 : 20000; }

  static constexpr int tags = 32768;  // every MPI has at least this many

  std::shared_ptr<Process> process_;
  Handle main_, steps_, checks_;
  std::string axis_;
  int rank_ = 0, size_ = 1;
  std::uint64_t sequence_ = 0;
  std::uint64_t payloads_ = 0;  // messages sent, for their long data
  std::vector<int> members_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<FlightRecorder::Line> flight_;
  std::vector<std::shared_ptr<Running>> under_way_;
  bool gave_up_ = false;
};

class MpiGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<MpiGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  bool test() override {
    if (!running_->complete) {
      group_->expect_no_leftovers(running_->transfer.call(), running_->sequence);
      group_->process_->progress();
    }
    if (running_->complete) group_->expect_whole(*running_);
    return running_->complete;
  }
  void wait() override {
    group_->wait(*running_);
    group_->expect_whole(*running_);
  }
  void abandon() noexcept override {
    if (running_->complete) return;
    if (std::uncaught_exceptions() > 0) return group_->give_up(*running_);
    try {
      wait();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }

 private:
  std::shared_ptr<MpiGroup> group_;
  std::shared_ptr<Running> running_;
};

// Sends and receives without memory of their own: most messages arrive soon.
inline void MpiGroup::send_or_receive(const Call& call) {
  const std::uint64_t number = begin(call), sequence = sequence_;
  const std::uint64_t step = message_number(call);
  std::unique_ptr<Message> message;
  guarded(call, sequence, [&] { message = std::make_unique<Message>(main_.get(), checks_.get(), call, payloads_++); });
  try {
    for (int turn = 0, most = spins(); turn < most; ++turn) {
      bool done = false;
      guarded(call, sequence, [&] { done = message->test(); });
      if (done) {
        process_->recorder.complete(number);
        return expect_whole(call, sequence, *message);
      }
      if (process_->under_way != 0) process_->progress();
    }
  } catch (...) {
    leave_buffers(call, *message);
    throw;
  }
  auto running = std::make_shared<Running>(place(), call, 0, 0, false, sequence, number);
  running->step = step;
  running->transfer.adopt(std::move(message));
  under_way_.push_back(running);
  count(1);
  wait(*running);
  expect_whole(*running);
}

inline std::unique_ptr<Pending> MpiGroup::start(const Call& call) {
  const std::uint64_t number = begin(call);
  // Messages differ between ranks, collectives do not: the chunks of one go by its number among them.
  const bool message = is_point_to_point(call.operation);
  const std::uint64_t step = message ? message_number(call) : ledger_->collective(call);
  const int step_tag = message ? 0 : 2 * int(step % (tags / 2));
  auto running =
      std::make_shared<Running>(place(), call, step_tag, message ? payloads_++ : step, process_->fingerprints, sequence_, number);
  running->step = step;
  under_way_.push_back(running);
  count(1);
  try {
    guarded(*running, [&] {
      if (process_->fingerprints && !message)
        running->comparison.emplace(running->transfer.call(), checks_.get(), steps_.get(), rank_, size_);
      else advance(*running);
    });
  } catch (...) {
    give_up(*running);
    throw;
  }
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

inline void MpiGroup::wait(Running& running) {
  try {
    expect_no_leftovers(running.transfer.call(), running.sequence);
    poll(running);
  } catch (...) {
    give_up(running);
    throw;
  }
}

/// Advances all operations of this rank until this one is complete, or throws.
inline void MpiGroup::poll(Running& running) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int turn = 0, most = spins(); !running.complete && turn < most; ++turn) process_->progress();
  while (!running.complete) {
    process_->progress();
    const auto waited = Clock::now() - start;
    // What the lost rank sent before has arrived by the time that the store has heard of it, or soon after.
    if (const int q = waited > std::chrono::milliseconds(20) ? process_->lost() : -1; q >= 0 && !running.complete)
      throw AbortedError(process_->rank, axis_, describe(running.transfer.call()), running.sequence, process_->fate(q));
    if (waited > process_->deadline)
      throw TimeoutError(process_->rank, axis_, describe(running.transfer.call()), running.sequence,
                         "waited longer than the deadline of " + std::to_string(process_->deadline.count()) +
                             " s; last operations: " + process_->recorder.text());
    if (waited > Watch::patience) look(running);
    if (comm::detail::wait_must_end(start)) {
      const Call& call = running.transfer.call();  // of a collective MPI does not say who is missing
      comm::detail::throw_interrupted(
          process_->rank, axis_, call, running.sequence,
          is_point_to_point(call.operation) ? "rank " + std::to_string(call.root) + " of " + axis_ : std::string());
    }
    // MPI moves bytes only while it is called, so sleep only where nobody seems to be sending.
    if (waited > std::chrono::seconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    else std::this_thread::yield();
  }
}

/// A turn of a wait that is long already: throws if it can never end.
inline void MpiGroup::look(Running& running) {
  const Call& call = running.transfer.call();
  const bool message = is_point_to_point(call.operation);
  if (!message && !process_->fingerprints) return;  // who has only to send needs nobody
  if (!running.long_wait) {
    running.long_wait = std::make_unique<Watch::Wait>(*ledger_, call, running.step, process_->recorder.text(2));
    std::vector<int>& on = running.long_wait->on;
    if (message) on = {members_[std::size_t(call.root)]};
    else
      for (int k = 1; k < size_; ++k) on.push_back(members_[std::size_t((rank_ + k) % size_)]);
  }
  const std::string why = process_->watch->look(*running.long_wait);
  if (!why.empty()) throw MismatchError(process_->rank, axis_, describe(call), running.sequence, why);
}

inline std::shared_ptr<Group> MpiGroup::split(int color, int key, std::string axis) {
  // Nobody waits inside of MPI for ranks that are somewhere else: until all are here, each may need this one to go on.
  const std::uint64_t name = weft::detail::hash_bytes(axis.data(), axis.size());
  const std::int64_t mine = std::int64_t(name);
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  execute({.operation = Operation::all_gather,
           .type = DataType::int64,
           .purpose = Purpose::split,
           .function = process_->recorder.function(),
           .count = 1,
           .input = &mine,
           .output = all.data()});
  for (std::size_t q = 0; q < all.size(); ++q)
    if (all[q] != mine)
      throw MismatchError(
          process_->rank, axis_, "split()", sequence_,
          weft::detail::joined({"ranks disagree: rank ", rank_, " splits for axis ", axis, ", rank ", long(q), " for another"}));
  MPI_Comm part = MPI_COMM_NULL;
  const comm::detail::BlockingCall inside("MPI_Comm_split of " + axis_ + " for " + axis);
  mpi::check(MPI_Comm_split(main_.get(), color, key, &part), "MPI_Comm_split");
  Handle handle(part);
  int members = 0;
  mpi::check(MPI_Comm_size(part, &members), "MPI_Comm_size");
  if (members == 1) return std::make_shared<SelfGroup>(std::move(axis), "mpi");
  auto group = std::make_shared<MpiGroup>(process_, std::move(handle), std::move(axis));
  const std::uint64_t channel = 2 * group->number() + 1;
  std::vector<int> ranks = group->members();
  return shared_memory::SharedMemoryGroup::over(process_, std::move(group), channel, std::move(ranks));
}

}  // namespace weft::comm::mpi
