// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory and a stream for weft's calls, without a GPU in Kokkos.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <Kokkos_Core.hpp>
#include <weft/comm/operation.hpp>

#include "support/fake_nccl/fake.hpp"
#include "support/on_device.hpp"

namespace weft_test {

/// Stands for Kokkos::Cuda: an execution space whose instances have a stream.
struct DeviceSpace : Kokkos::DefaultExecutionSpace {
  using execution_space = DeviceSpace;
  cudaStream_t stream = nullptr;
  cudaStream_t cuda_stream() const { return stream; }
};

/// Device memory as an argument of calls.
struct OfDevice {
  explicit OfDevice(std::size_t n)
      : buffer(n * sizeof(float)), elements{weft::DataType::float32, weft::comm::MemoryKind::device, buffer.get(), n, nullptr} {}
  DeviceBuffer buffer;
  weft::comm::Elements elements;
  float at(std::size_t i) const {
    float value = 0;
    weft::cuda_check(cudaMemcpy(&value, buffer.get() + i * sizeof value, sizeof value, cudaMemcpyDefault), "cudaMemcpy");
    return value;
  }
  void fill(float value) {
    const std::vector<float> values(elements.count, value);
    weft::cuda_check(cudaMemcpy(buffer.get(), values.data(), bytes(), cudaMemcpyDefault), "cudaMemcpy");
    weft::cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  std::size_t bytes() const { return elements.count * sizeof(float); }
  fake_nccl::Range range() const { return {buffer.get(), bytes()}; }
  /// A kernel that fills it.
  void fill_on(cudaStream_t stream, float value) {
    auto* const to = reinterpret_cast<float*>(buffer.get());
    fake_nccl::launch(stream, "fill", {}, {range()}, [=, n = elements.count] { std::fill_n(fake_nccl::seen(to), n, value); });
  }
};

}  // namespace weft_test
