// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all NCCL groups of a rank share: its GPU, one lane on which the collectives of all axes follow each other, all
// operations in progress, and one failure: after it every communicator of the rank is aborted.
//
// A thread watches the operations whose Request was waited for only on a stream: the host may then block in a fence that only an
// abort ends. The thread makes no progress for anyone; `mutex` separates it from the rank's own thread.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/nccl/failure.hpp>
#include <weft/comm/nccl/running.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/text.hpp>
#include <weft/device/cuda/shared_work.hpp>

namespace weft::comm::nccl {

class NcclGroup;

class Process final : public gpu::SharedWork {
 public:
  struct Options {
    int rank = 0, device = 0;
    std::chrono::duration<double> deadline{1800};
    bool fingerprints = false;  ///< one more exchange before each collective, to find ranks that disagree
  };
  explicit Process(const Options& options) : options_(options) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  int rank() const { return options_.rank; }
  bool fingerprints() const { return options_.fingerprints; }
  std::chrono::duration<double> deadline() const { return options_.deadline; }

  std::mutex mutex;  ///< guards everything below; held briefly, never during a wait
  FlightRecorder own_recorder;
  FlightRecorder* recorder = &own_recorder;  ///< or that of the host's ranks: a rank has one
  std::vector<NcclGroup*> groups;
  Lane collectives;
  bool frees = false;  ///< the rank waits in order to give memory back

  /// Waits for the operations that this rank has launched; answers other ranks meanwhile.
  void finish() override;  // group.hpp

  /// Listens to the host backend's ranks, so that a wait for NCCL notices a failed rank. `host` is used for nothing else.
  void listen(Communicator host) {
    host_.emplace(std::move(host));
    const int n = host_->size();
    if (n == 1) return;
    Request alarm = host_->recv_async(std::span(&heard_, 1), (host_->rank() + n - 1) % n);
    std::swap(alarm_, alarm);
  }
  /// Throws the host backend's error if a rank has failed.
  void look_around() { (void)alarm_.test(); }

  std::shared_ptr<Comm> adopt() {
    comms_.push_back(std::make_shared<Comm>(options_.device));
    return comms_.back();
  }
  void retire(const std::shared_ptr<Comm>& comm) {
    if (!comm) return;
    std::erase(comms_, comm);
    retired_.push_back(comm);
  }

  /// An event, reused: after the first few, operations create none.
  CudaEvent event() {
    if (spare_.empty()) return {};
    CudaEvent event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }

  /// Launches the operations of a lane that are ready.
  void advance(Lane& lane);
  /// Puts an operation into the graph that its stream is recorded into. Throws UsageError if it cannot become part of one.
  void record(const std::shared_ptr<Running>& running);
  /// Watches a launch, on `stream`, of a graph with operations that were recorded here.
  void watch(cudaStream_t stream);
  /// Checks the launched operations.
  void look();
  /// An operation on the GPU, or null. Operations that wait in a lane are not there yet.
  std::shared_ptr<Running> launched() const { return flying_.empty() ? collectives.issuing() : flying_.front(); }
  bool idle() const { return collectives.waiting.empty(); }

  /// Throws the reason why communication ended, once; later the fact that it has.
  [[noreturn]] WEFT_COLD void refuse(const Running& running) {
    if (std::exchange(told_, true)) failure_->throw_again(rank(), running);
    failure_->throw_first(rank());
  }
  bool failed() const { return failure_.has_value(); }
  /// Aborts every communicator, so that no kernel waits any more and buffers are free; the first reason is kept.
  WEFT_COLD void abort(const Running& running, const std::string& text, bool late = false) noexcept {
    if (!failure_) failure_ = Failure{late, running.axis, describe(running.call), text, running.sequence};
    collectives.waiting.clear();
    abort_all();
  }
  /// abort, and then throws the error in the rank's own thread.
  template <class E = CommunicationError>
  [[noreturn]] WEFT_COLD void fail(const Running& running, const std::string& text) {
    abort(running, text, std::is_same_v<E, TimeoutError>);
    told_ = true;
    throw E(rank(), running.axis, describe(running.call), running.sequence, text);
  }
  /// The process was asked to stop, and this operation has lasted too long since.
  WEFT_COLD void interrupt(const Running& running) {
    abort(running, weft::detail::joined({comm::detail::stop_text(), " and waited ", long(comm::detail::stop_patience().count()),
                                         " ms more for the other ranks, in vain"}));
    failure_->interrupted = true;
  }
  [[noreturn]] WEFT_COLD void too_late(const Running& running) { fail<TimeoutError>(running, late_text(running)); }

  /// Runs f; errors of libraries become errors of this operation.
  template <class F>
  auto guarded(const Running& running, F&& f) {
    try {
      return f();
    } catch (const CommunicationError&) {
      throw;
    } catch (const InterruptedError&) {
      throw;
    } catch (const Error& error) {
      fail(running, std::string(words_of(error)));
    }
  }

  /// Starts the thread that watches operations for which no host thread waits. Called with `mutex` held.
  void watch() {
    if (!watchdog_.joinable()) watchdog_ = std::thread([this] { guard(); });
  }

 private:
  /// In groups: an abort waits for the kernels of its GPU, and those of communicators that are not aborted yet would never end.
  void abort_all() noexcept {
    for (const auto half : {&Comm::stop, &Comm::bury}) {
      report(ncclGroupStart(), "ncclGroupStart");
      for (const auto* list : {&comms_, &retired_})
        for (const auto& comm : *list) (*comm.*half)();
      report(ncclGroupEnd(), "ncclGroupEnd");
    }
  }
  bool ready(const Running& running) {
    if (!running.comm) return true;
    const ncclResult_t state = running.comm->state();
    if (state == ncclSuccess) return true;
    if (state == ncclInProgress) return false;
    broken(running, state);
  }
  [[noreturn]] WEFT_COLD void broken(const Running& running, ncclResult_t state) {
    const std::string text = broken_text(running, state);
    if (state == ncclRemoteError) fail<AbortedError>(running, text);
    fail(running, text);
  }
  WEFT_COLD std::string late_text(const Running& running) const {
    return weft::detail::joined({nccl::late_text(running, options_.deadline, frees), "; last operations: ", recorder->text()});
  }
  static void launch(const std::shared_ptr<Running>& running, cudaStream_t stream);
  static bool checked(Process& process, Running& running);
  void guard();

  /// The limit of the sum of Running::work. NCCL's queue of work for a GPU is finite (1 MiB), and a call waits for room in it
  /// until kernels end, without a deadline. This much fits.
  static constexpr std::size_t most_work = 4096;

  Options options_;
  std::optional<Communicator> host_;
  std::uint8_t heard_ = 0;
  Request alarm_;  // a message that the previous rank sends at its end
  std::vector<std::shared_ptr<Comm>> comms_, retired_;
  std::vector<std::shared_ptr<Running>> flying_;
  std::size_t work_ = 0;  // of those in flight
  std::vector<CudaEvent> spare_;
  std::shared_ptr<Running> last_recorded_;  // names a graph that is launched
  std::optional<Failure> failure_;
  bool told_ = false, stop_ = false;
  std::condition_variable changed_;
  std::thread watchdog_;
};

inline void Process::launch(const std::shared_ptr<Running>& running, cudaStream_t stream) {
  const Call& call = running->call;
  if (running->comm)
    return running->comm->call(Launch(call, {running->comm->get(), running->rank, running->size, stream}), running);
  if (!is_point_to_point(call.operation)) return Launch(call, {nullptr, running->rank, running->size, stream}).run();
  if (call.operation == Operation::recv && call.bytes() != 0)  // a message of a rank to itself: the receive copies
    cuda_check(cudaMemcpyAsync(call.output, running->own_message, call.bytes(), cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync");
}

/// True if all ranks made the same call. Throws MismatchError that names two ranks if not.
inline bool Process::checked(Process& process, Running& running) {
  if (running.check && !running.check->test()) return false;
  running.check.reset();
  const auto& all = running.fingerprints;
  for (std::size_t q = 1; q < all.size() / 3; ++q) {
    if (same_call(all[0], all[3 * q]) && std::equal(all.begin() + 1, all.begin() + 3, all.begin() + std::ptrdiff_t(3 * q + 1)))
      continue;
    const auto rank = [&](std::size_t r) { return weft::detail::joined({"rank ", long(r), " of ", running.axis}); };
    const auto one = [&](std::size_t r) { return rank(r) + " called " + describe(all[3 * r], all[3 * r + 1]); };
    process.fail<MismatchError>(running, weft::detail::joined({"ranks disagree: ", one(0), ", ", one(q),
                                                               functions_of(rank(0), all[0], rank(q), all[3 * q])}));
  }
  return true;
}

inline void Process::advance(Lane& lane) {
  while (!lane.waiting.empty()) {
    const std::shared_ptr<Running> head = lane.waiting.front();
    Running& running = *head;
    const bool launched = guarded(running, [&] {
      using enum Running::Stage;
      if (running.stage == checking) {
        if (!checked(*this, running)) return false;
        running.stage = queued;
      }
      if (running.stage == queued) {
        if (work_ + running.work() > most_work && !flying_.empty()) return false;
        if (!ready(running)) return false;  // the communicator is still being made
        if (running.before) running.before->hold_back(lane.stream.get());
        launch(head, lane.stream.get());
        running.stage = issuing;
      }
      if (!ready(running)) return false;  // ranks connect at their first operation
      running.after = event();
      running.after->record(lane.stream.get());
      running.stage = flying;
      running.since = Clock::now();
      return true;
    });
    if (!launched) return;
    lane.waiting.pop_front();
    flying_.push_back(head);
    work_ += running.work();
  }
}

inline void Process::record(const std::shared_ptr<Running>& running) {
  const auto refuse_to = [&](const char* why) {
    throw_error<UsageError>(
        {"rank ", rank(), ", axis ", running->axis, ", ", describe(running->call), ": cannot be recorded into a graph: ", why});
  };
  if (is_point_to_point(running->call.operation))
    refuse_to("the two ranks of a message agree on its order in each step, over the host");
  for (const auto& earlier : flying_)
    if (earlier->on_stream)
      refuse_to("an earlier operation was not waited for, and launches of the graph would not come after it");
  if (!idle()) refuse_to("earlier operations are not launched yet");
  const Launch call(running->call,
                    {running->comm ? running->comm->get() : nullptr, running->rank, running->size, collectives.stream.get()});
  if (running->comm && !running->comm->connected(call))
    refuse_to("it is the first of its kind, and ranks connect: run the step before it is recorded");
  guarded(*running, [&] {
    running->before->hold_back(collectives.stream.get());
    call.run();
    running->after.emplace().record(collectives.stream.get());
  });
  running->stage = Running::Stage::complete;  // nothing of it is left for the host, which may query no event of a recording
  recorder->complete(running->number);
  last_recorded_ = running;
}

inline void Process::watch(cudaStream_t stream) {
  if (!last_recorded_) return;
  const Running& last = *last_recorded_;
  auto launch = std::make_shared<Running>(last.call, last.axis, last.rank, last.size, last.sequence, last.number);
  guarded(*launch, [&] {
    launch->after = event();
    launch->after->record(stream);
  });
  launch->stage = Running::Stage::flying;
  launch->since = Clock::now();
  flying_.push_back(std::move(launch));
  watch();
}

inline void Process::look() {
  for (const auto& running : flying_) {
    const bool done = guarded(*running, [&] { return running->after->done(); });
    if (done) {
      running->stage = Running::Stage::complete;
      work_ -= running->work();
      recorder->complete(running->number);
      for (auto* used : {&running->before, &running->after})
        if (*used) {
          spare_.push_back(std::move(**used));
          used->reset();
        }
    } else if (!ready(*running)) {
      continue;
    }
  }
  std::erase_if(flying_, [](const auto& running) { return running->stage == Running::Stage::complete; });
  std::erase_if(retired_, [this](const auto& comm) {  // a launched operation still asks its communicator for errors
    const bool flies = std::any_of(flying_.begin(), flying_.end(), [&](const auto& running) { return running->comm == comm; });
    return !flies && comm->retire();
  });
}

/// The watching thread: aborts if an operation passed its deadline or failed.
inline void Process::guard() {
  (void)cudaSetDevice(options_.device);
  const auto interval = std::min<std::chrono::duration<double>>(std::chrono::milliseconds(100), options_.deadline / 4);
  std::unique_lock lock(mutex);
  while (!changed_.wait_for(lock, interval, [&] { return stop_; })) {
    if (failure_) continue;
    for (const auto& running : flying_) {
      try {
        if (running->after->done()) continue;
        const ncclResult_t state = running->comm ? running->comm->state() : ncclSuccess;
        if (state != ncclSuccess && state != ncclInProgress) abort(*running, broken_text(*running, state));
        else if (Clock::now() - running->since > options_.deadline) abort(*running, late_text(*running), true);
        else if (comm::detail::wait_must_end(running->since)) interrupt(*running);
      } catch (const std::exception& error) {
        abort(*running, std::string(words_of(error)));
      }
      if (failure_) break;
    }
  }
}

inline Process::~Process() {
  bool good = std::uncaught_exceptions() == 0;
  try {
    if (good && host_ && host_->size() > 1) {  // no rank leaves while others may still wait for it
      const std::uint8_t word = 1;
      Request last = host_->send_async(std::span(&word, 1), (host_->rank() + 1) % host_->size());
      alarm_.wait();
      last.wait();
      host_->barrier();
    }
    // Operations that streams still wait for end first; the watching thread ends them at their deadline.
    for (bool flies = good; flies;) {
      {
        std::lock_guard lock(mutex);
        if (!failed()) look();
        flies = !failed() && !flying_.empty();
      }
      if (flies) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (const std::exception&) {  // another rank failed, and reports its own error
    good = false;
  }
  if (!good) {
    std::lock_guard lock(mutex);
    abort_all();
  }
  if (watchdog_.joinable()) {
    {
      std::lock_guard lock(mutex);
      stop_ = true;
    }
    changed_.notify_all();
    watchdog_.join();
  }
  for (const auto& comm : comms_) retired_.push_back(comm);
  const auto end = Clock::now() + std::chrono::seconds(5);
  for (;;) {
    std::erase_if(retired_, [](const auto& comm) { return comm->retire(); });
    if (retired_.empty() || Clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace weft::comm::nccl
