// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory and a stream as calls of weft take them, where Kokkos has no GPU.

#include <cuda_runtime_api.h>

#include <cstddef>

#include <Kokkos_Core.hpp>
#include <weft/comm/operation.hpp>

#include "support/on_device.hpp"

namespace weft_test {

/// Stands for Kokkos::Cuda: an execution space whose instances have a stream.
struct DeviceSpace : Kokkos::DefaultExecutionSpace {
  using execution_space = DeviceSpace;
  cudaStream_t stream = nullptr;
  cudaStream_t cuda_stream() const { return stream; }
};

/// Device memory as calls take it.
struct OfDevice {
  explicit OfDevice(std::size_t n)
      : buffer(n * sizeof(float)), elements{weft::DataType::float32, weft::comm::MemoryKind::device, buffer.get(), n, nullptr} {}
  DeviceBuffer buffer;
  weft::comm::Elements elements;
  float at(std::size_t i) const { return reinterpret_cast<const float*>(buffer.get())[i]; }
  void fill(float value) {
    for (std::size_t i = 0; i < elements.count; ++i) reinterpret_cast<float*>(buffer.get())[i] = value;
  }
};

}  // namespace weft_test
