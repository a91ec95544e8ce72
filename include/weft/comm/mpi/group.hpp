// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of MPI processes. Every wait polls, so that it has a deadline and advances every operation that this rank has
// started.

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/mpi/transfer.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/shared_memory/group.hpp>

namespace weft::comm::mpi {

using Process = shared_memory::Sharing;

class MpiGroup final : public Group, public Progress, public std::enable_shared_from_this<MpiGroup> {
 public:
  /// Takes ownership of `main`. Collective over it.
  MpiGroup(std::shared_ptr<Process> process, Handle main, std::string axis)
      : process_(std::move(process)), main_(std::move(main)), steps_(Handle::duplicate(main_.get())), axis_(std::move(axis)) {
    mpi::check(MPI_Comm_rank(main_.get(), &rank_), "MPI_Comm_rank");
    mpi::check(MPI_Comm_size(main_.get(), &size_), "MPI_Comm_size");
    if (process_->fingerprints) checks_ = Handle::duplicate(main_.get());
    process_->groups.push_back(this);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override {
    count(-long(under_way_.size()));
    std::erase(process_->groups, this);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return "mpi"; }
  bool supports(Operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host; }

  void execute(const Call& call) override {
    if (is_point_to_point(call.operation)) return send_or_receive(call);
    if (auto pending = start(call)) pending->wait();
  }
  std::unique_ptr<Pending> start(const Call& call) override;
  std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  void progress() override {
    if (under_way_.empty()) return;
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
    Running(const Place& place, const Call& call, int tag, std::uint64_t s, std::uint64_t n)
        : transfer(place, call, tag), sequence(s), number(n) {}
    Transfer transfer;
    std::uint64_t sequence, number;
    MPI_Request check = MPI_REQUEST_NULL;  // of the exchange of fingerprints
    std::array<std::uint64_t, 3> mine{};
    std::vector<std::uint64_t> all;
    bool complete = false;
  };

  void start_check(Running& running);
  bool checked(Running& running);
  bool advance(Running& running) {
    if (!running.transfer.launched()) {
      if (!checked(running)) return false;
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
  void expect_whole(const Running& running) {
    expect_whole(running.transfer.call(), running.sequence, running.transfer.received());
  }
  void expect_whole(const Call& call, std::uint64_t sequence, std::size_t received) {
    if (call.operation == Operation::recv && received != call.count)
      throw MismatchError(process_->rank, axis_, describe(call), sequence,
                          "rank " + std::to_string(call.root) + " sent " + std::to_string(received) + " elements, " +
                              std::to_string(call.count) + " were expected");
  }
  /// Checks the call and records its begin; returns its number in the flight recorder.
  std::uint64_t begin(const Call& call) {
    call.order.fence();
    if (call.tag < 0 || call.tag >= tags)
      throw UsageError(std::string(name_of(call.operation)) + ": tag " + std::to_string(call.tag) + " is not in [0, " +
                       std::to_string(tags) + ")");
    ++sequence_;
    return process_->recorder.begin(axis_, sequence_, signature(call), call.count);
  }
  void send_or_receive(const Call& call);
  // Spinning pays only if the awaited process has a core of its own.
  int spins() const { return process_->crowded ? 10 : 20000; }

  static constexpr int tags = 32768;  // every MPI has at least this many

  std::shared_ptr<Process> process_;
  Handle main_, steps_, checks_;
  std::string axis_;
  int rank_ = 0, size_ = 1;
  std::uint64_t sequence_ = 0, collectives_ = 0;
  std::vector<std::shared_ptr<Running>> under_way_;
};

class MpiGroup::Started final : public Pending {
 public:
  Started(std::shared_ptr<MpiGroup> group, std::shared_ptr<Running> running)
      : group_(std::move(group)), running_(std::move(running)) {}
  bool test() override {
    if (!running_->complete) group_->process_->progress();
    if (running_->complete) group_->expect_whole(*running_);
    return running_->complete;
  }
  void wait() override {
    group_->wait(*running_);
    group_->expect_whole(*running_);
  }
  void abandon() noexcept override {
    // MPI cannot take an operation back; with an exception on its way the process ends, and the buffers are left to it.
    if (running_->complete || std::uncaught_exceptions() > 0) return;
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
  MPI_Request request = MPI_REQUEST_NULL;
  guarded(call, sequence, [&] { request = post_message(main_.get(), call); });
  for (int turn = 0, most = spins(); turn < most; ++turn) {
    int done = 0;
    MPI_Status status;
    guarded(call, sequence, [&] { mpi::check(MPI_Test(&request, &done, &status), "MPI_Test"); });
    if (done != 0) {
      process_->recorder.complete(number);
      if (call.operation == Operation::recv) expect_whole(call, sequence, elements_of(status, call.type));
      return;
    }
    if (process_->under_way != 0) process_->progress();
  }
  auto running = std::make_shared<Running>(Place{main_.get(), steps_.get(), rank_, size_}, call, 0, sequence, number);
  running->transfer.launched(request);
  under_way_.push_back(running);
  count(1);
  wait(*running);
  expect_whole(*running);
}

inline std::unique_ptr<Pending> MpiGroup::start(const Call& call) {
  const std::uint64_t number = begin(call);
  // Messages differ between ranks, collectives do not: the chunks of one go by its number among them.
  const int step_tag = is_point_to_point(call.operation) ? 0 : 2 * int(++collectives_ % (tags / 2));
  auto running = std::make_shared<Running>(Place{main_.get(), steps_.get(), rank_, size_}, call, step_tag, sequence_, number);
  under_way_.push_back(running);
  count(1);
  guarded(*running, [&] {
    if (process_->fingerprints && !is_point_to_point(call.operation)) start_check(*running);
    else advance(*running);
  });
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

inline void MpiGroup::wait(Running& running) {
  using Clock = std::chrono::steady_clock;
  for (int turn = 0, most = spins(); !running.complete && turn < most; ++turn) process_->progress();
  const auto start = Clock::now();
  while (!running.complete) {
    process_->progress();
    const auto waited = Clock::now() - start;
    if (waited > process_->deadline)
      throw TimeoutError(process_->rank, axis_, describe(running.transfer.call()), running.sequence,
                         "waited longer than the deadline of " + std::to_string(process_->deadline.count()) +
                             " s; last operations: " + process_->recorder.text());
    // MPI moves bytes only while it is called, so sleep only where nobody seems to be sending.
    if (waited > std::chrono::seconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    else std::this_thread::yield();
  }
}

inline void MpiGroup::start_check(Running& running) {
  const Call& call = running.transfer.call();
  std::uint64_t counts = 0;
  if (call.operation != Operation::all_to_all_v)
    for (const std::size_t count : call.receive_counts) counts = counts * 1000003 + count;
  running.mine = {signature(call), call.count, counts};
  running.all.resize(running.mine.size() * std::size_t(size_));
  mpi::check(MPI_Iallgather(running.mine.data(), int(running.mine.size()), MPI_UINT64_T, running.all.data(),
                            int(running.mine.size()), MPI_UINT64_T, checks_.get(), &running.check),
             "MPI_Iallgather");
}

inline bool MpiGroup::checked(Running& running) {
  if (running.all.empty()) return true;
  int done = 0;
  mpi::check(MPI_Test(&running.check, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done == 0) return false;
  const auto& all = running.all;
  for (std::size_t q = 1; q < std::size_t(size_); ++q) {
    if (std::equal(all.begin(), all.begin() + 3, all.begin() + std::ptrdiff_t(3 * q))) continue;
    const auto one = [&](std::size_t r) {
      return "rank " + std::to_string(r) + " of " + axis_ + " called " + describe(all[3 * r], all[3 * r + 1]);
    };
    throw MismatchError(process_->rank, axis_, describe(running.transfer.call()), running.sequence,
                        "ranks disagree: " + one(0) + ", " + one(q));
  }
  running.all.clear();
  return true;
}

inline std::shared_ptr<Group> MpiGroup::split(int color, int key, std::string axis) {
  MPI_Comm part = MPI_COMM_NULL;
  mpi::check(MPI_Comm_split(main_.get(), color, key, &part), "MPI_Comm_split");
  Handle handle(part);
  int members = 0;
  mpi::check(MPI_Comm_size(part, &members), "MPI_Comm_size");
  if (members == 1) return std::make_shared<SelfGroup>(std::move(axis), "mpi");
  return shared_memory::SharedMemoryGroup::over(process_,
                                                std::make_shared<MpiGroup>(process_, std::move(handle), std::move(axis)));
}

}  // namespace weft::comm::mpi
