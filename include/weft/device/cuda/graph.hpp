// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training step as one CUDA graph (parallel/cuda/graphed_step.hpp uses it for a model's train_step). A step's work on a stream
// is recorded once and launched repeatedly. This saves the launches of its kernels, a microsecond or more each, which is as long
// as the kernels of small models run. Opt-in, for steps that
//  - put all their work on that stream, or on streams that are joined with it by events in both directions,
//  - allocate nothing from CUDA and never wait for the GPU (the first runs fill the arena and the libraries' caches),
//  - have the same shapes and pointers each time. Kernel arguments passed by value (a learning rate, the step number for dropout)
//    are recorded too: put them into the key or into device memory.
//
//   gpu::StepGraph graph;
//   graph.run(stream, {batch, length}, [&] { ... });   // runs twice, then is recorded, then only launched

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include <weft/device/cuda/runtime.hpp>

namespace weft::gpu {

class StepGraph {
 public:
  /// Number of ordinary runs before the recording, in which the step allocates its memory.
  static constexpr int warm_up = 2;

  StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  ~StepGraph() { forget(); }

  /// Runs `step`, or launches the recording made with the same key and stream. A new key starts again with ordinary runs. Throws
  /// CudaError if the step cannot be recorded; the GPU has then executed none of it. Exceptions of `step` are passed on.
  template <class Step>
  void run(cudaStream_t stream, std::initializer_list<std::uint64_t> key, Step&& step) {
    run(stream, std::span<const std::uint64_t>(key.begin(), key.size()), step);
  }
  template <class Step>
  void run(cudaStream_t stream, std::span<const std::uint64_t> key, Step&& step) {
    if (stream != stream_ || key.size() != key_.size() || !std::equal(key.begin(), key.end(), key_.begin())) {
      forget();
      stream_ = stream;
      key_.assign(key.begin(), key.end());
    }
    if (launchable_ == nullptr) {
      if (runs_ < warm_up) {
        ++runs_;
        step();
        return;
      }
      record(step);
    }
    cuda_check(cudaGraphLaunch(launchable_, stream_), "cudaGraphLaunch");
  }

  bool recorded() const { return launchable_ != nullptr; }
  /// Drops the recording; the next run is an ordinary one. For changes of shapes, pointers or values that are not in the key.
  void forget() noexcept {
    if (launchable_ != nullptr) cuda_report(cudaGraphExecDestroy(std::exchange(launchable_, nullptr)), "cudaGraphExecDestroy");
    runs_ = 0;
  }

 private:
  template <class Step>
  void record(Step&& step) {
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      step();
    } catch (...) {
      end_in_vain();
      throw;
    }
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (ended == cudaErrorStreamCaptureInvalidated || ended == cudaErrorStreamCaptureUnjoined ||
        ended == cudaErrorStreamCaptureUnmatched) {
      (void)cudaGetLastError();
      throw_error<CudaError>({"cuda: this step cannot become a graph (", cudaGetErrorName(ended),
                              "): it waited for the GPU, allocated memory from CUDA, or left a stream that nothing waits for"});
    }
    cuda_check(ended, "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&launchable_, graph, 0);
    cuda_report(cudaGraphDestroy(graph), "cudaGraphDestroy");
    if (made != cudaSuccess) launchable_ = nullptr;
    cuda_check(made, "cudaGraphInstantiate");
  }
  void end_in_vain() noexcept {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cuda_report(cudaGraphDestroy(graph), "cudaGraphDestroy");
    (void)cudaGetLastError();
  }

  cudaStream_t stream_ = nullptr;
  std::vector<std::uint64_t> key_;
  cudaGraphExec_t launchable_ = nullptr;
  int runs_ = 0;
};

}  // namespace weft::gpu
