// SPDX-License-Identifier: Apache-2.0
#pragma once
// Basics of all CUDA code in weft: return codes as errors, the choice of a rank's GPU with a one-line error if there is none,
// events and streams. Needs only the CUDA runtime, neither Kokkos nor nvcc (target weft::cuda).
//
//   cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
//   const int device = choose_gpu(gpu_machine(), local_rank, local_ranks);

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <utility>

#include <weft/core/error.hpp>

namespace weft {

/// A failed call of a CUDA library: exit code 1. After an error of the device (an illegal address, for example) all work on the
/// GPU is lost and CUDA refuses every later call of the process.
class CudaError : public Error {
 public:
  explicit CudaError(const std::string& what) : Error(what) {}
};

/// Throws CudaError unless `status` is success; `what` names the call.
inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw_error<CudaError>({"cuda: ", what, " failed: ", cudaGetErrorName(status), ", ", cudaGetErrorString(status)});
}

/// cuda_check for places that must not throw (destructors): prints one line on stderr. Ignores a runtime that has ended, since it
/// has nothing left to free.
inline void cuda_report(cudaError_t status, const char* what) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading) [[likely]]
    return;
  std::fprintf(stderr, "weft: cuda: %s failed: %s, %s\n", what, cudaGetErrorName(status), cudaGetErrorString(status));
}

/// The CUDA runtime's description of this computer. Versions are 1000 major + 10 minor.
struct GpuMachine {
  int gpus = 0;
  int driver = 0;   ///< newest CUDA version that the driver supports; 0: no driver
  int runtime = 0;  ///< CUDA version with which this program was built
};

/// Queries the CUDA runtime. Without a GPU or a driver it returns zeros instead of throwing.
inline GpuMachine gpu_machine() {
  GpuMachine machine;
  cuda_check(cudaRuntimeGetVersion(&machine.runtime), "cudaRuntimeGetVersion");
  if (cudaDriverGetVersion(&machine.driver) != cudaSuccess) machine.driver = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&machine.gpus); status != cudaSuccess) {
    machine.gpus = 0;
    // A driver that is too old also gives an error here; its version shows the reason.
    if (status != cudaErrorNoDevice && status != cudaErrorInsufficientDriver && status != cudaErrorStubLibrary)
      cuda_check(status, "cudaGetDeviceCount");
    (void)cudaGetLastError();  // otherwise a later, unrelated check would report it
  }
  return machine;
}

namespace detail {
WEFT_COLD inline std::string cuda_version_text(int version) { return joined({version / 1000, ".", version % 1000 / 10}); }
}  // namespace detail

/// Throws UsageError if this computer cannot run a program on a GPU: no GPU, no driver, or a driver older than the program's CUDA
/// (an older driver of the same major version is accepted).
WEFT_COLD inline void require_gpu(const GpuMachine& machine) {
  const std::string built = detail::cuda_version_text(machine.runtime);
  if (machine.driver == 0)
    throw_error<UsageError>({"cuda: no NVIDIA driver on this machine; this program was built for GPUs with CUDA ", built});
  if (machine.driver / 1000 < machine.runtime / 1000)
    throw_error<UsageError>({"cuda: the driver supports CUDA up to ", detail::cuda_version_text(machine.driver),
                             ", but this program was built with ", built,
                             ": install a newer driver, or build with an older toolkit"});
  if (machine.gpus == 0)
    throw_error<UsageError>({"cuda: no GPU is visible to this program (nvidia-smi lists them; CUDA_VISIBLE_DEVICES hides them)"});
}

/// The GPU of rank `local_rank` among the `local_ranks` ranks of this computer: the GPU with that number. Throws UsageError as
/// require_gpu does, and also if there are fewer GPUs than ranks, unless `share` allows several ranks to use one GPU.
WEFT_COLD inline int choose_gpu(const GpuMachine& machine, int local_rank, int local_ranks, bool share = false) {
  require_gpu(machine);
  if (local_rank < 0 || local_rank >= local_ranks)
    throw_error<UsageError>({"cuda: local rank ", local_rank, " is not one of the ", local_ranks, " ranks on this machine"});
  if (local_ranks > machine.gpus && !share)
    throw_error<UsageError>({"cuda: ", local_ranks, " ranks on this machine, but ", machine.gpus,
                             machine.gpus == 1 ? " GPU" : " GPUs",
                             ": start at most as many ranks as GPUs, or allow ranks to share them (WEFT_SHARE_GPUS=1)"});
  return local_rank % machine.gpus;
}

/// An event on a stream, without timing: the cheapest way to make one stream wait for another.
class CudaEvent {
 public:
  CudaEvent() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent() {
    if (event_ != nullptr) cuda_report(cudaEventDestroy(event_), "cudaEventDestroy");
  }

  void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Later work on `stream` starts after the recorded event.
  void hold_back(cudaStream_t stream) const { cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  void wait() const { cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  bool done() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) cuda_check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

namespace gpu {
/// True if work put on `stream` now is recorded into a graph instead of executed.
inline bool is_recorded(cudaStream_t stream) {
  if (stream == nullptr) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}
}  // namespace gpu

/// A CUDA stream without implicit synchronisation with other streams.
class CudaStream {
 public:
  CudaStream() { cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  /// A stream whose blocks the GPU schedules before those of other streams as soon as some multiprocessors are free. For short
  /// work with waiting users, such as communication: at ordinary priority it would begin only when a large kernel ends.
  static CudaStream of_highest_priority() {
    int least = 0, greatest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
    return CudaStream(stream);
  }
  CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~CudaStream() {
    if (stream_ != nullptr) cuda_report(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  cudaStream_t get() const { return stream_; }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream_ = nullptr;
};

}  // namespace weft
