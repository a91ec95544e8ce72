// SPDX-License-Identifier: Apache-2.0
#pragma once
// The destination of sorted slots among the rows of experts. kernels/cuda/expert_order.cuh uses it; it is separate so that hosts
// can test it.

#include <cstdint>

#include <weft/core/standard.hpp>

#if defined(__CUDACC__)
#define WEFT_CUDA_BOTH __host__ __device__
#else
#define WEFT_CUDA_BOTH
#endif

namespace weft::gpu::detail {

WEFT_CUDA_BOTH constexpr std::int32_t filled_rows(std::int32_t count, std::int32_t grain) {
  return (count + grain - 1) / grain * grain;
}

/// The index of the first sorted slot whose expert is not below `expert`.
WEFT_CUDA_BOTH inline std::int32_t first_of_expert(const std::int32_t* sorted, std::int32_t slots, std::int32_t expert) {
  std::int32_t low = 0, high = slots;
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (sorted[middle] < expert) low = middle + 1;
    else high = middle;
  }
  return low;
}

/// The destination of the i-th sorted slot, whose expert is `expert`: the rows of every earlier expert are padded to the grain.
/// Experts are few, so it loops over them.
WEFT_CUDA_BOTH inline std::int32_t place_of_sorted(const std::int32_t* begin, std::int32_t expert, std::int32_t i,
                                                   std::int32_t grain) {
  std::int32_t first = 0;
  for (std::int32_t e = 0; e < expert; ++e) first += filled_rows(begin[e + 1] - begin[e], grain);
  return first + i - begin[expert];
}

}  // namespace weft::gpu::detail

#undef WEFT_CUDA_BOTH
