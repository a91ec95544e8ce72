// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transfer of a number from a GPU to the host through page-locked memory, on a separate stream. The host waits only for the
// copy; kernels launched after it continue. Available only if Kokkos was built for CUDA.

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA

#include <optional>

#include <weft/device/cuda/pinned_memory.hpp>
#include <weft/device/number_to_host.hpp>

namespace weft::detail {

template <>
class NumberToHost<Kokkos::Cuda> {
  using GpuDevice = Device<Kokkos::Cuda>;

 public:
  void start(GpuDevice& device, const double* number, const Buffer& held) {
    if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
      return notes->copied();
    if (!way_) way_.emplace();
    way_->copy.start(way_->memory.data(), number, sizeof *number, device.exec().cuda_stream(), held);
  }
  double wait(GpuDevice& device) {
    if (device.rehearsal() != nullptr) [[unlikely]]
      return 0;
    way_->copy.wait();
    return *static_cast<const double*>(way_->memory.data());
  }

 private:
  struct Way {
    gpu::PinnedMemory memory{sizeof(double)};
    gpu::SideCopy copy;
  };
  std::optional<Way> way_;  // a rehearsal has no GPU
};

}  // namespace weft::detail

#endif
