// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Group of MPI processes: how one operation starts, advances and ends over MPI. comm/polled_group.hpp has the waits.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/mpi/comparison.hpp>
#include <weft/comm/mpi/transfer.hpp>
#include <weft/comm/mpi/watch.hpp>
#include <weft/comm/polled_group.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::mpi {

class MpiGroup final : public PolledGroup {
 public:
  /// Takes ownership of `main`. Collective over it.
  static std::shared_ptr<MpiGroup> over(std::shared_ptr<Process> process, Handle main, std::string axis) {
    int size = 0;
    mpi::check(MPI_Comm_size(main.get(), &size), "MPI_Comm_size");
    std::uint64_t number = process->next_group;  // new to every rank that gets it
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_UINT64_T, MPI_MAX, main.get()), "MPI_Allreduce");
    process->next_group = number + 1;
    std::vector<int> members = ranks_in(process->world, main.get(), size);
    return std::make_shared<MpiGroup>(std::move(process), std::move(main), number, std::move(members), std::move(axis));
  }
  MpiGroup(std::shared_ptr<Process> process, Handle main, std::uint64_t number, std::vector<int> members, std::string axis)
      : PolledGroup(std::move(process), 2 * number, std::move(members), std::move(axis), "mpi"),
        main_(std::move(main)),
        steps_(Handle::duplicate(main_.get())),
        checks_(Handle::duplicate(main_.get())) {}
  ~MpiGroup() override {
    give_up_all();
    if (gave_up_)
      for (Handle* handle : {&main_, &steps_, &checks_}) handle->leave();
  }

  /// The group, or one over it whose collectives go through shared memory.
  std::shared_ptr<Group> sharing_memory() {
    return shared_memory::SharedMemoryGroup::over(std::static_pointer_cast<Process>(process_), shared_from_this(),
                                                  ledger_->channel() + 1, members_);
  }

  void execute(const Call& call) override {
    if (is_point_to_point(call.operation)) send_or_receive(call);
    else PolledGroup::execute(call);
  }
  inline std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  void progress() override {
    if (leftovers().writes.empty()) PolledGroup::progress();
  }

 private:
  struct InFlight final : Running {
    InFlight(const Place& place, const Call& of, int tag, std::uint64_t payload, bool compares)
        : transfer(place, of, tag, payload, compares) {
      call = &transfer.call();
    }
    Transfer transfer;
    std::optional<Comparison> comparison;  // until the ranks are known to agree
  };
  static InFlight& in_flight(Running& running) { return static_cast<InFlight&>(running); }
  Process& process() const { return static_cast<Process&>(*process_); }

  std::shared_ptr<Running> make(const Call& call, std::uint64_t step) override {
    // The number of a collective distinguishes its chunks; messages have none.
    const bool message = is_point_to_point(call.operation);
    return std::make_shared<InFlight>(place(), call, message ? 0 : 2 * int(step % (tags / 2)), message ? payloads_++ : step,
                                      process_->fingerprints);
  }
  void launch(Running& running) override {
    InFlight& started = in_flight(running);
    guarded(running, [&] {
      if (process_->fingerprints && !is_point_to_point(running.call->operation)) {
        running.launched = false;
        started.comparison.emplace(*running.call, checks_.get(), steps_.get(), rank(), size());
      } else {
        started.transfer.launch();
      }
    });
  }
  bool advance(Running& running) override {
    InFlight& started = in_flight(running);
    bool done = false;
    guarded(running, [&] {
      if (started.comparison) {
        if (!started.comparison->test()) return;
        if (const std::string why = started.comparison->difference(axis()); !why.empty()) throw_disagreement(running, why);
        started.comparison.reset();
        started.transfer.launch();
        running.launched = true;
      }
      done = started.transfer.test();
    });
    return done;
  }
  void pause(const Running&, Clock::duration waited) override {
    // MPI moves bytes only while it is called: sleep only after a second without an end.
    if (waited > std::chrono::seconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    else std::this_thread::yield();
  }
  WEFT_COLD void take_back(std::shared_ptr<Running> running) override {
    leave_buffers(*running->call, in_flight(*running).transfer);
    leftovers().memory.push_back(std::move(running));
  }
  void expect_usable(const ProcessGroup::Running& running) override {
    if (running.call->tag < 0 || running.call->tag >= tags) [[unlikely]]
      throw_error<UsageError>(
          {name_of(running.call->operation), ": tag ", running.call->tag, " is not in [0, ", long(tags), ")"});
    if (process_->disturbed()) [[unlikely]]
      throw_aborted(running, process_->fate(process_->lost()));
    if (!leftovers().writes.empty()) [[unlikely]]
      throw_aborted(running,
                    leftovers().writes +
                        " was under way on this rank when an error came, and MPI cannot take it back: it may still touch "
                        "those buffers, so that this process has to end, and calls nothing of MPI but MPI_Abort");
  }
  void expect_whole(const Running& running) override {
    if (const Message* message = static_cast<const InFlight&>(running).transfer.message()) expect_whole(running, *message);
  }
  void expect_whole(const ProcessGroup::Running& running, const Message& message) const {
    if (!message.mismatch()) return;
    const Call& call = *running.call;
    throw_disagreement(
        running,
        weft::detail::joined({rank_name(call.root), " sent ", message.found().count, " ", name_of(DataType(message.found().type)),
                              ", ", call.count, " ", name_of(call.type), " were expected",
                              functions_of(rank_name(call.root), message.found().function, rank_name(rank()), signature(call))}));
  }
  // MPI does not report the missing ranks of a collective. Without a comparison a rank that only sends may need no other rank.
  std::vector<int> awaited(const ProcessGroup::Running& running) const override {
    const Call& call = *running.call;
    if (is_point_to_point(call.operation)) return {members_[std::size_t(call.root)]};
    std::vector<int> others;
    for (int k = 1; process_->fingerprints && k < size(); ++k) others.push_back(members_[std::size_t((rank() + k) % size())]);
    return others;
  }
  std::string missing(const ProcessGroup::Running& running) const override {
    return is_point_to_point(running.call->operation) ? rank_name(running.call->root) : std::string();
  }
  // Spinning pays only if the awaited process has a core of its own.
  int spins() const override { return process().crowded ? 10 : 20000; }

  /// Runs f; errors of MPI get the name of the operation.
  template <class F>
  void guarded(const ProcessGroup::Running& running, F&& f) {
    try {
      f();
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error& error) {
      throw CommunicationError(process_->rank, std::string(axis()), describe(*running.call), running.sequence, error.what());
    }
  }
  /// Takes the caller's buffers back from a Transfer or Message, or notes that MPI has them.
  template <class T>
  WEFT_COLD void leave_buffers(const Call& call, T& operation) {
    gave_up_ = true;
    operation.give_up();
    Leftovers& left = leftovers();
    if (!left.writes.empty()) return;  // not one more turn of MPI
    const bool writes = !operation.take_back();
    if (writes) left.writes = weft::detail::joined({describe(call), " on axis ", axis()});
    else if (operation.reads()) left.reads = weft::detail::joined({describe(call), " on axis ", axis()});
  }
  void send_or_receive(const Call& call);
  Place place() const { return {main_.get(), steps_.get(), checks_.get(), &heaps(), rank(), size()}; }

  static constexpr int tags = 32768;  // every MPI has at least this many

  Handle main_, steps_, checks_;
  std::uint64_t payloads_ = 0;  // messages sent, for their long data
  bool gave_up_ = false;
};

// Sends and receives without memory of their own: most messages arrive soon.
inline void MpiGroup::send_or_receive(const Call& call) {
  ProcessGroup::Running begun{.call = &call};
  begin(begun);
  std::unique_ptr<Message> message;
  guarded(begun, [&] { message = std::make_unique<Message>(main_.get(), checks_.get(), heaps(), call, payloads_++); });
  try {
    for (int turn = 0, most = spins(); turn < most; ++turn) {
      bool done = false;
      guarded(begun, [&] { done = message->test(); });
      if (done) {
        complete(begun);
        return expect_whole(begun, *message);
      }
      if (process_->under_way != 0) process_->progress();
    }
  } catch (...) {
    leave_buffers(call, *message);
    throw;
  }
  const auto running = std::make_shared<InFlight>(place(), call, 0, 0, false);
  running->transfer.adopt(std::move(message));
  add(running, begun);
  wait(*running);
}

inline std::shared_ptr<Group> MpiGroup::split(int color, int key, std::string axis) {
  // All ranks are here before any of them waits inside MPI: until then, others may need this one for earlier operations.
  gather_for_split({}, axis);
  MPI_Comm part = MPI_COMM_NULL;
  const comm::detail::BlockingCall inside(weft::detail::joined({"MPI_Comm_split of ", this->axis(), " for ", axis}));
  mpi::check(MPI_Comm_split(main_.get(), color, key, &part), "MPI_Comm_split");
  Handle handle(part);
  int members = 0;
  mpi::check(MPI_Comm_size(part, &members), "MPI_Comm_size");
  if (members == 1) return std::make_shared<SelfGroup>(std::move(axis), "mpi");
  return over(std::static_pointer_cast<Process>(process_), std::move(handle), std::move(axis))->sharing_memory();
}

}  // namespace weft::comm::mpi
