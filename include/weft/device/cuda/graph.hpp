// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step as one CUDA graph (parallel/cuda/graphed_step.hpp: a model's train_step): what it gives to a stream is recorded once and launched again, which saves the launches of its kernels
// (a microsecond or more each, where small models run for as long). Opt-in, for steps that
//  - give all their work to that stream, or to others that wait for it and that it waits for,
//  - allocate nothing from CUDA and never wait for the GPU (the first runs fill the arena and the libraries' caches),
//  - have the same shapes and pointers each time. Numbers that a kernel gets by value (a learning rate, the number of the step that
//    dropout is a function of) are recorded too: they belong into the key, or into device memory.
//
//   gpu::StepGraph graph;
//   graph.run(stream, {batch, length}, [&] { ... });   // twice as it is, then recorded, then launched

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include <weft/device/cuda/runtime.hpp>

namespace weft::gpu {

class StepGraph {
 public:
  /// Runs before the recording: they take from CUDA what the step keeps.
  static constexpr int warm_up = 2;

  StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  ~StepGraph() { forget(); }

  /// Runs `step`, or launches what it did with the same key and stream; a new key starts anew. Throws CudaError where the step
  /// cannot be recorded; it has then done nothing on the GPU. What `step` itself throws is passed on.
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
  /// The next run is as it is; after shapes, pointers or values that the key does not hold have changed.
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
    if (ended == cudaErrorStreamCaptureInvalidated || ended == cudaErrorStreamCaptureUnjoined || ended == cudaErrorStreamCaptureUnmatched) {
      (void)cudaGetLastError();
      throw_error<CudaError>({"cuda: this step cannot become a graph (", cudaGetErrorName(ended), "): it waited for the GPU, allocated memory from CUDA, or left a stream that nothing waits for"});
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
