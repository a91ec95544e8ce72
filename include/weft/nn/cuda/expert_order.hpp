// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order of rows by expert, computed on the GPU. CUB sorts the assignments. Only the number of rows per expert is copied to
// the host, which needs it for the sizes of products and messages. Exists only if Kokkos was built for CUDA.

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/kernels/cuda/expert_order.cuh>
#include <weft/kernels/expert_assignments.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

template <>
struct DeviceOrder<Kokkos::Cuda> {
  static constexpr bool exists = true;
  static std::vector<std::uint64_t> sort(Device<Kokkos::Cuda>& device, std::size_t slots, std::size_t experts, std::size_t grain,
                                         const std::int32_t* chosen, std::int32_t* order, std::size_t room, std::int32_t* place) {
    const Tensor<std::int64_t, Kokkos::Cuda> counts(device, {experts});
    device.template cache<gpu::ExpertOrder>().assign(chosen, slots, experts, grain, order, room, place,
                                                     reinterpret_cast<std::uint64_t*>(counts.data()),
                                                     device.exec().cuda_stream());
    const auto host = copy_to_host(counts);
    return std::vector<std::uint64_t>(host.begin(), host.end());
  }
};

}  // namespace weft::detail

#endif
