// SPDX-License-Identifier: Apache-2.0
#pragma once
// Page-locked host memory, which the GPU reads and writes at full speed, and copies on a separate stream while the GPU computes.
// It holds offloaded state (ModelOptions::shard.offload = Offload::host()) if the model computes on a GPU.
//
//   gpu::PinnedMemory memory(bytes);
//   gpu::SideCopy copy;
//   copy.start(memory.data(), on_device, bytes, stream);   // after the work already on `stream`
//   copy.wait();                                           // until the bytes are in host memory

#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <weft/device/cuda/shared_work.hpp>

namespace weft::gpu {

/// Page-locked memory, all zero. Throws CudaError if none is left: a system has less of it than of ordinary memory.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    cuda_check(cudaMallocHost(&data_, bytes), "cudaMallocHost");
    std::memset(data_, 0, bytes);
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory() { free_pinned_memory(data_); }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Copies on a separate stream, in the order in which they are started.
class SideCopy {
 public:
  /// Starts a copy after the current work of `stream`. Until `wait` or `hold_back`, the source must not change and the target
  /// must not be used; `held` is kept alive until the copy is done.
  void start(void* to, const void* from, std::size_t bytes, cudaStream_t stream, std::shared_ptr<void> held = nullptr) {
    if (bytes == 0) return;
    begin_.record(stream);
    begin_.hold_back(side_.get());
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, side_.get()), "cudaMemcpyAsync");
    let_go();
    if (held) {
      if (spare_.empty()) spare_.emplace_back();
      held_.push_back({std::move(spare_.back()), std::move(held)});
      spare_.pop_back();
      held_.back().copied.record(side_.get());
    }
    end_.record(side_.get());  // recorded last, so waiting for it waits for all copies
  }
  /// Later work on `stream` starts after the copies.
  void hold_back(cudaStream_t stream) const { end_.hold_back(stream); }
  /// Waits until the copies are done.
  void wait() {
    end_.wait();
    let_go();
  }
  bool done() const { return end_.done(); }

 private:
  struct Held {
    CudaEvent copied;
    std::shared_ptr<void> buffer;
  };
  void let_go() {
    for (; !held_.empty() && held_.front().copied.done(); held_.pop_front()) spare_.push_back(std::move(held_.front().copied));
  }
  std::deque<Held> held_;
  std::vector<CudaEvent> spare_;
  CudaStream side_;
  CudaEvent begin_, end_;
};

}  // namespace weft::gpu
