// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's part of the test double: its functions, with events as counters, and graphs as lists of the work that
// streams received while they were recorded.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "support/fake_nccl/internal.hpp"

using fake_nccl::Task;

struct CUgraph_st {
  std::vector<Task> tasks;
  cudaStream_t origin = nullptr;
  std::set<cudaStream_t> apart;  // other streams with work that the origin does not wait for
  std::set<cudaStream_t> all;
  bool spoilt = false;
};
struct CUgraphExec_st {
  std::vector<Task> tasks;
};

struct CUstream_st {
  std::shared_ptr<fake_nccl::Stream> works;
  int priority = 0;
  CUgraph_st* recording = nullptr;  // of the thread that submits work
};

struct CUevent_st {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, done = 0;
    CUgraph_st* graph = nullptr;  // recorded on a stream that was being recorded
    cudaStream_t stream = nullptr;
    std::shared_ptr<fake_nccl::Stream> works;  // the event is complete when this stream reaches it
    fake_nccl::Clock clock;                    // the work before the event

    /// Waits for the record `until`.
    void wait(std::uint64_t until) {
      std::unique_lock lock(mutex);
      if (done < until) {
        const auto wanted = works;
        lock.unlock();
        wanted->demand();
        lock.lock();
      }
      changed.wait(lock, [&] { return done >= until; });
    }
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace fake_nccl {

Machine& machine() {
  static auto* const machine = new Machine;
  return *machine;
}
Faults& faults() {
  static thread_local Faults faults;
  return faults;
}

namespace {

std::atomic<int> stream_count{0};
thread_local int current_device = 0;
thread_local CUgraph_st* being_recorded = nullptr;  // by this thread

// Calls that are forbidden while a stream is recorded.
cudaError_t spoil() {
  if (being_recorded == nullptr) return cudaSuccess;
  being_recorded->spoilt = true;
  return cudaErrorStreamCaptureUnsupported;
}

/// A GPU's default stream is one more stream: those of weft are made not to wait for it.
CUstream_st& queue(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  static auto* const mutex = new std::mutex;
  static auto* const by_default = new std::map<int, CUstream_st>;
  std::lock_guard lock(*mutex);
  auto& mine = (*by_default)[current_device];
  if (!mine.works) mine.works = make_stream(current_device);
  return mine;
}

/// Ordinary host memory may be overwritten as soon as a copy from it returns.
bool is_pageable(const void* pointer) { return !is_pinned(pointer) && device_of_block(pointer) < 0; }

Task copying(void* to, const void* from, std::size_t bytes) {
  return {"a copy", [=] { std::memmove(seen_by_streams(to), seen_by_streams(from), bytes); }, {{from, bytes}}, {{to, bytes}}};
}

}  // namespace

int streams() { return stream_count.load(); }
int device() { return current_device; }
int priority_of(cudaStream_t stream) { return queue(stream).priority; }
std::shared_ptr<Stream> works_of(cudaStream_t stream) { return queue(stream).works; }
bool is_recorded(cudaStream_t stream) { return queue(stream).recording != nullptr; }
void enqueue(cudaStream_t stream, Task task, const Host& host) {
  CUstream_st& on = queue(stream);
  if (on.recording == nullptr) return on.works->add(std::move(task), host);
  on.recording->tasks.push_back(std::move(task));
  if (stream != on.recording->origin) on.recording->apart.insert(stream);
}
void enqueue(cudaStream_t stream, std::function<void()> task) {
  enqueue(stream, {"a kernel", std::move(task), {}, {}}, this_host_thread());
}
void launch(cudaStream_t stream, std::string name, std::vector<Range> reads, std::vector<Range> writes,
            std::function<void()> run) {
  enqueue(stream, {std::move(name), std::move(run), std::move(reads), std::move(writes)}, this_host_thread());
}
std::uint64_t given(cudaStream_t stream) { return queue(stream).works->given(); }
bool waits_for(cudaStream_t stream, const void* written) {
  Clock clock = queue(stream).works->clock();
  std::lock_guard lock(clocks_mutex());
  clock.merge(this_host_thread().clock);
  return after_writes(clock, written);
}

struct Block::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false, ended = false;
};
Block::Block(cudaStream_t stream) : state_(new State) {
  enqueue(stream, [state = state_] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->released; });
    state->ended = true;
    state->changed.notify_all();
  });
}
void Block::release() {
  if (state_ == nullptr) return;
  std::unique_lock lock(state_->mutex);
  state_->released = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return state_->ended; });
  lock.unlock();
  delete std::exchange(state_, nullptr);
}

}  // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorSystemDriverMismatch: return "cudaErrorSystemDriverMismatch";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "text of the test double"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = machine().runtime, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = machine().driver, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().count == cudaSuccess ? machine().gpus : 0;
  return machine().count;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().gpus) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(static_cast<void*>(properties), 0, sizeof *properties);
  properties->uuid.bytes[0] = char(device + 1);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st{make_stream(current_device)};
  ++stream_count;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = greatest_priority;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t made = cudaStreamCreateWithFlags(stream, flags);
  (*stream)->priority = priority;
  return made;
}
/// Returns at once; the stream's submitted work is completed first.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->works->close();
  delete stream;
  --stream_count;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (queue(stream).recording != nullptr) return spoil();
  const auto works = queue(stream).works;
  const Clock clock = works->clock();
  works->drain();
  host_has_waited_for(clock);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto state = event->state;
  if (state->graph != nullptr) {  // the stream joins the recording
    queue(stream).recording = state->graph;
    state->graph->all.insert(stream);
    if (stream == state->graph->origin) state->graph->apart.erase(state->stream);
    return cudaSuccess;
  }
  std::uint64_t until = 0;
  Clock clock;
  {
    std::lock_guard lock(state->mutex);
    until = state->recorded;
    clock = state->clock;
  }
  enqueue(stream, {"a wait for an event", [state, until] { state->wait(until); }, {}, {}}, this_host_thread());
  queue(stream).works->come_after(clock);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto state = event->state;
  state->graph = queue(stream).recording;
  state->stream = stream;
  if (state->graph != nullptr) {
    if (stream != state->graph->origin) state->graph->apart.insert(stream);
    return cudaSuccess;
  }
  const auto works = queue(stream).works;
  Clock clock = works->clock();
  {
    std::lock_guard lock(clocks_mutex());
    clock.merge(this_host_thread().clock);
  }
  std::uint64_t number = 0;
  {
    std::lock_guard lock(state->mutex);
    number = ++state->recorded;
    state->clock = std::move(clock);
    state->works = works;
  }
  enqueue(stream,
          {"the record of an event",
           [state, number] {
             std::lock_guard lock(state->mutex);
             state->done = number;
             state->changed.notify_all();
           },
           {},
           {}},
          this_host_thread());
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto state = event->state;
  if (state->graph != nullptr || being_recorded != nullptr) return spoil();
  Clock clock;
  {
    std::lock_guard lock(state->mutex);
    if (state->done != state->recorded) return cudaErrorNotReady;
    clock = state->clock;
  }
  host_has_waited_for(clock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto state = event->state;
  if (state->graph != nullptr) return spoil();
  std::uint64_t until = 0;
  Clock clock;
  {
    std::lock_guard lock(state->mutex);
    until = state->recorded;
    clock = state->clock;
  }
  state->wait(until);
  host_has_waited_for(clock);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  being_recorded = stream->recording = new CUgraph_st;
  being_recorded->origin = stream;
  being_recorded->all.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = queue(stream).recording != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUgraph_st* const made = std::exchange(being_recorded, nullptr);
  if (made == nullptr || made->origin != stream) return cudaErrorStreamCaptureUnmatched;
  for (const cudaStream_t joined : made->all) joined->recording = nullptr;
  *graph = nullptr;
  const bool unjoined = !made->apart.empty(), spoilt = made->spoilt;
  if (!unjoined && !spoilt) return *graph = made, cudaSuccess;
  delete made;
  return spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return *made = new CUgraphExec_st{graph->tasks}, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, cudaSuccess; }
/// One task with the accesses of all tasks: to other streams, a graph begins and ends as a whole.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Task whole{"a graph",
             [tasks = graph->tasks] {
               for (const Task& task : tasks) task.run();
             },
             {},
             {}};
  for (const Task& task : graph->tasks) {
    whole.reads.insert(whole.reads.end(), task.reads.begin(), task.reads.end());
    whole.writes.insert(whole.writes.end(), task.writes.begin(), task.writes.end());
  }
  enqueue(stream, std::move(whole), this_host_thread());
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return *pointer = take_block(bytes, Where::pinned, current_device), cudaSuccess;
}
/// Waits for the whole GPU.
cudaError_t cudaFreeHost(void* pointer) {
  wait_for_device(current_device, "cudaFreeHost");
  return free_block(pointer, Where::pinned) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t status = spoil(); status != cudaSuccess) return status;
  *pointer = take_block(bytes, Where::device, current_device);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
/// Waits for the whole GPU.
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t status = spoil(); status != cudaSuccess) return status;
  if (const int of = device_of_block(pointer); of >= 0) wait_for_device(of, "cudaFree");
  return free_block(pointer, Where::device) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* all) {
  *all = machine().memory;
  *left = bytes_left(current_device);
  return cudaSuccess;
}
/// A copy on the default stream. It returns when the bytes are there, but from pageable memory when they are on their way, and
/// within a device at once.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = on_device(to, bytes), from_device = on_device(from, bytes);
  if (to_device && is_pageable(from)) {
    const auto* begin = static_cast<const char*>(from);
    launch(nullptr, "a copy", {}, {{to, bytes}}, [to, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(seen_by_streams(to), staged.data(), staged.size());
    });
    return cudaSuccess;
  }
  enqueue(nullptr, copying(to, from, bytes), this_host_thread());
  return to_device && from_device ? cudaSuccess : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToDevice && (!on_device(to, bytes) || !on_device(from, bytes))) return cudaErrorInvalidValue;
  enqueue(stream, copying(to, from, bytes), this_host_thread());
  return cudaSuccess;
}

}  // extern "C"
