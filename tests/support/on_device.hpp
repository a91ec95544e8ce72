// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator with host buffers and operations in device memory. The conformance suite has only host buffers, and a backend
// for device memory must behave in the same way with its own. Each operation copies in, runs, and copies out.

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/device/cuda/runtime.hpp>

namespace weft_test {

/// Device memory that is reused and never freed: on a GPU cudaFree waits for all kernels, including those of other ranks'
/// messages.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    std::lock_guard lock(mutex());
    auto& same = spare()[{device(), bytes}];
    if (same.empty()) {
      weft::cuda_check(cudaMalloc(&data_, bytes), "cudaMalloc");
    } else {
      data_ = same.back();
      same.pop_back();
    }
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    std::lock_guard lock(mutex());
    spare()[{device(), bytes_}].push_back(data_);
  }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  static int device() {
    int device = 0;
    weft::cuda_check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<std::pair<int, std::size_t>, std::vector<void*>>& spare() {
    static std::map<std::pair<int, std::size_t>, std::vector<void*>> spare;
    return spare;
  }
  void* data_ = nullptr;
  std::size_t bytes_;
};

class OnDevice final : public weft::comm::Group {
 public:
  using Call = weft::comm::Call;
  using Operation = weft::comm::Operation;
  using MemoryKind = weft::comm::MemoryKind;

  explicit OnDevice(std::shared_ptr<weft::comm::Group> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view axis() const override { return inner_->axis(); }
  std::string_view backend() const override { return inner_->backend(); }
  bool supports(Operation operation, weft::DataType type, MemoryKind) const override {
    return inner_->supports(operation, type, MemoryKind::device);
  }

  void execute(const Call& call) override {
    if (call.operation == Operation::barrier) return inner_->execute(call);
    start(call)->wait();
  }
  std::unique_ptr<weft::comm::Pending> start(const Call& call) override {
    if (call.operation == Operation::barrier) return inner_->start(call);
    auto staged = std::make_unique<Staged>(call, elements(call));
    Call moved = call;
    moved.memory = MemoryKind::device;
    moved.input = staged->input;
    moved.output = staged->output;
    staged->inner = inner_->start(moved);
    return staged;
  }
  std::shared_ptr<weft::comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<OnDevice>(inner_->split(color, key, std::move(axis)));
  }

 private:
  struct Staged final : weft::comm::Pending {
    Staged(const Call& call, std::pair<std::size_t, std::size_t> counts)
        : host(call.output),
          in_bytes(counts.first * size_of(call.type)),
          out_bytes(counts.second * size_of(call.type)),
          in(in_bytes),
          out(out_bytes) {
      const auto* from = static_cast<const std::byte*>(call.input);
      auto* to = static_cast<std::byte*>(call.output);
      if (out_bytes != 0) weft::cuda_check(cudaMemcpy(out.get(), to, out_bytes, cudaMemcpyDefault), "cudaMemcpy");
      output = out.get();
      const bool in_place = in_bytes != 0 && from >= to && from + in_bytes <= to + out_bytes;
      input = in_place ? out.get() + (from - to) : in.get();
      if (in_bytes != 0 && !in_place) weft::cuda_check(cudaMemcpy(in.get(), from, in_bytes, cudaMemcpyDefault), "cudaMemcpy");
      weft::cuda_check(cudaStreamSynchronize(nullptr),
                       "cudaStreamSynchronize");  // copies from pageable memory may be on their way still
    }
    bool test() override { return inner->test() && (finish(), true); }
    void wait() override {
      inner->wait();
      finish();
    }
    void abandon() noexcept override { inner->abandon(); }
    void finish() {
      if (out_bytes != 0) weft::cuda_check(cudaMemcpy(host, out.get(), out_bytes, cudaMemcpyDefault), "cudaMemcpy");
    }
    void* host;
    std::size_t in_bytes, out_bytes;
    DeviceBuffer in, out;
    const void* input = nullptr;
    void* output = nullptr;
    std::unique_ptr<weft::comm::Pending> inner;
  };

  /// Elements of input and output of this rank.
  std::pair<std::size_t, std::size_t> elements(const Call& call) const {
    using enum Operation;
    const auto n = std::size_t(size()), me = std::size_t(rank()), count = call.count;
    const bool root = call.root == rank();
    const auto sum = [](std::span<const std::size_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), std::size_t(0));
    };
    switch (call.operation) {
      case all_reduce:
      case broadcast: return {count, count};
      case reduce: return {count, root ? count : 0};
      case reduce_scatter: return {n * count, count};
      case reduce_scatter_v: return {sum(call.receive_counts), call.receive_counts[me]};
      case all_gather: return {count, n * count};
      case all_gather_v: return {call.receive_counts[me], sum(call.receive_counts)};
      case gather: return {count, root ? n * count : 0};
      case scatter: return {root ? n * count : 0, count};
      case all_to_all: return {n * count, n * count};
      case all_to_all_v: return {sum(call.send_counts), sum(call.receive_counts)};
      case send: return {count, 0};
      case recv: return {0, count};
      case barrier:
      case split: break;
    }
    return {0, 0};
  }

  std::shared_ptr<weft::comm::Group> inner_;
};

inline weft::Communicator on_device(const weft::Communicator& c) {
  return weft::Communicator(std::make_shared<OnDevice>(c.group()));
}

}  // namespace weft_test
