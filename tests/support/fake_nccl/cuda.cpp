// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's part of the test double: streams as queues with a thread each, events as counters, device memory as host
// memory, graphs as lists of what streams were given while they were recorded.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_nccl/internal.hpp"

struct CUgraph_st {
  std::vector<std::function<void()>> tasks;
  cudaStream_t origin = nullptr;
  std::set<cudaStream_t> apart;  // other streams with work that the origin does not wait for
  std::set<cudaStream_t> all;
  bool spoilt = false;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> tasks;
};

struct CUstream_st {
  CUstream_st() : worker([this] { work(); }) { ++fake_nccl::stream_count(); }
  ~CUstream_st() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    worker.join();
    --fake_nccl::stream_count();
  }
  void add(std::function<void()> task) {
    {
      std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
    }
    changed.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex);
    idle.wait(lock, [&] { return tasks.empty() && !busy; });
  }
  int device = 0, priority = 0;
  CUgraph_st* recording = nullptr;  // of the thread that gives it work

 private:
  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || !tasks.empty(); });
      if (tasks.empty()) return;  // what was given to a stream is done before it ends
      auto task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      busy = false;
      if (tasks.empty()) idle.notify_all();
    }
  }
  std::mutex mutex;
  std::condition_variable changed, idle;
  std::deque<std::function<void()>> tasks;
  bool stop = false, busy = false;
  std::thread worker;
};

struct CUevent_st {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, done = 0;
    CUgraph_st* graph = nullptr;  // recorded on a stream that was being recorded
    cudaStream_t stream = nullptr;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace fake_nccl {

Machine& machine() {
  static Machine machine;
  return machine;
}
Faults& faults() {
  static thread_local Faults faults;
  return faults;
}
std::atomic<int>& stream_count() {
  static std::atomic<int> count{0};
  return count;
}
int streams() { return stream_count().load(); }

namespace {

thread_local int current_device = 0;
thread_local CUgraph_st* being_recorded = nullptr;  // by this thread

// Calls that a stream must not see while it is recorded.
cudaError_t spoil() {
  if (being_recorded == nullptr) return cudaSuccess;
  being_recorded->spoilt = true;
  return cudaErrorStreamCaptureUnsupported;
}

struct Memory {
  std::mutex mutex;
  std::map<const char*, std::size_t> blocks;
};
Memory& memory() {
  static Memory memory;
  return memory;
}

CUstream_st& queue(cudaStream_t stream) {
  static CUstream_st by_default;
  return stream == nullptr ? by_default : *stream;
}

}  // namespace

int device() { return current_device; }
int priority_of(cudaStream_t stream) { return queue(stream).priority; }
int device_of(cudaStream_t stream) { return stream == nullptr ? current_device : stream->device; }
void enqueue(cudaStream_t stream, std::function<void()> task) {
  CUstream_st& on = queue(stream);
  if (on.recording == nullptr) return on.add(std::move(task));
  on.recording->tasks.push_back(std::move(task));
  if (stream != on.recording->origin) on.recording->apart.insert(stream);
}

bool on_device(const void* pointer, std::size_t bytes) {
  if (bytes == 0) return true;
  auto& known = memory();
  std::lock_guard lock(known.mutex);
  const auto* begin = static_cast<const char*>(pointer);
  auto after = known.blocks.upper_bound(begin);
  if (after == known.blocks.begin()) return false;
  --after;
  return begin + bytes <= after->first + after->second;
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
  *stream = new CUstream_st;
  (*stream)->device = current_device;
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
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (queue(stream).recording != nullptr) return spoil();
  queue(stream).drain();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto state = event->state;
  if (state->graph != nullptr) {  // the stream joins what is recorded
    queue(stream).recording = state->graph;
    state->graph->all.insert(stream);
    if (stream == state->graph->origin) state->graph->apart.erase(state->stream);
    return cudaSuccess;
  }
  std::uint64_t until = 0;
  {
    std::lock_guard lock(state->mutex);
    until = state->recorded;
  }
  enqueue(stream, [state, until] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->done >= until; });
  });
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
  std::uint64_t number = 0;
  {
    std::lock_guard lock(state->mutex);
    number = ++state->recorded;
  }
  enqueue(stream, [state, number] {
    std::lock_guard lock(state->mutex);
    state->done = number;
    state->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->state->graph != nullptr || being_recorded != nullptr) return spoil();
  std::lock_guard lock(event->state->mutex);
  return event->state->done == event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto state = event->state;
  if (state->graph != nullptr) return spoil();
  std::unique_lock lock(state->mutex);
  state->changed.wait(lock, [&] { return state->done == state->recorded; });
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
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  enqueue(stream, [tasks = graph->tasks] {
    for (const auto& task : tasks) task();
  });
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return (*pointer = std::malloc(bytes)) == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) { return std::free(pointer), cudaSuccess; }
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t status = spoil(); status != cudaSuccess) return status;
  *pointer = std::malloc(bytes == 0 ? 1 : bytes);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  auto& known = memory();
  std::lock_guard lock(known.mutex);
  known.blocks[static_cast<const char*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  auto& known = memory();
  {
    std::lock_guard lock(known.mutex);
    if (known.blocks.erase(static_cast<const char*>(pointer)) == 0) return cudaErrorInvalidValue;
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToDevice && (!on_device(to, bytes) || !on_device(from, bytes))) return cudaErrorInvalidValue;
  enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

}  // extern "C"
