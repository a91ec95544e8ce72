// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order of tokens by id for sums of embedding gradients: CUB's stable sort. Exists if Kokkos was built for CUDA.

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA

#include <cstddef>
#include <cstdint>

#include <cub/device/device_radix_sort.cuh>

#include <weft/core/checked.hpp>
#include <weft/device/cuda/runtime.hpp>
#include <weft/kernels/detail/token_order.hpp>

namespace weft::kernels::detail {

template <>
struct TokenOrder<Kokkos::Cuda> {
  static void sort(Device<Kokkos::Cuda>& device, std::size_t tokens, const std::int32_t* ids, std::int32_t* sorted,
                   std::int32_t* order) {
    const std::int32_t n = weft::detail::narrow<std::int32_t>(tokens, "tokens");
    const auto sorting = [&](void* memory, std::size_t& bytes, const std::int32_t* numbers) {
      cuda_check(
          cub::DeviceRadixSort::SortPairs(memory, bytes, ids, sorted, numbers, order, n, 0, 32, device.exec().cuda_stream()),
          "cub::DeviceRadixSort");
    };
    std::size_t bytes = 0;
    sorting(nullptr, bytes, nullptr);
    const weft::detail::Buffer numbers = device.allocate(tokens * sizeof(std::int32_t)), work = device.allocate(bytes);
    std::int32_t* const number = static_cast<std::int32_t*>(numbers.get());
    for_each(
        device, {"embedding", tokens * sizeof(std::int32_t)}, tokens,
        KOKKOS_LAMBDA(std::size_t i) { number[i] = std::int32_t(i); });
    sorting(work.get(), bytes, number);
  }
};

}  // namespace weft::kernels::detail

#endif
