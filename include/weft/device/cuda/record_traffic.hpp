// SPDX-License-Identifier: Apache-2.0
#pragma once
// Transfer of offloaded records between host memory and a GPU while the GPU computes, on two streams, one per direction. Records
// in files pass through the host, which waits for them. Available only if Kokkos was built for CUDA.

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA

#include <weft/device/cuda/pinned_memory.hpp>
#include <weft/device/offload_store.hpp>

namespace weft::detail {

template <>
class RecordTraffic<Kokkos::Cuda> {
  using GpuDevice = Device<Kokkos::Cuda>;

 public:
  static constexpr bool beside = true;
  void fetch(GpuDevice& device, const Store& store, std::size_t record, void* to, std::size_t bytes) {
    if (const void* from = store.memory(record)) in_.start(to, from, bytes, device.exec().cuda_stream());
    else read_record(device, store, record, to, bytes);
  }
  void arrive(GpuDevice& device) { in_.hold_back(device.exec().cuda_stream()); }
  void put(GpuDevice& device, Store& store, std::size_t record, const Buffer& from, std::size_t bytes) {
    if (void* to = store.memory(record)) out_.start(to, from.get(), bytes, device.exec().cuda_stream(), from);
    else write_record(device, store, record, from.get(), bytes);
  }
  void settle() { out_.wait(); }

 private:
  gpu::SideCopy in_, out_;
};

}  // namespace weft::detail

#endif
