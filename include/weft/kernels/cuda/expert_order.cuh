// SPDX-License-Identifier: Apache-2.0
#pragma once
// The packing order of rows for their experts, computed on the GPU: a stable sort by expert (CUB), prefix sums of the counts, and
// each slot's place. kernels/expert_assignments.hpp does the same on the host. For nvcc only.
//
//   gpu::ExpertOrder sorter;
//   sorter.assign(chosen, slots, experts, grain, order, room, place, counts, stream);

#include <cstddef>
#include <cstdint>

#include <cub/device/device_radix_sort.cuh>

#include <weft/core/checked.hpp>
#include <weft/device/cuda/shared_work.hpp>
#include <weft/kernels/cuda/expert_place.hpp>

namespace weft::gpu {

namespace detail {

struct OrderTables {
  // begin [experts + 1]: the first sorted slot of each expert.
  std::int32_t *sorted_expert, *sorted_slot, *slot, *begin;
};

static __global__ void number_slots(std::int32_t* slot, std::int32_t* place, std::int32_t slots) {
  for (std::int32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < slots; i += gridDim.x * blockDim.x) slot[i] = i, place[i] = -1;
}
static __global__ void find_experts(const std::int32_t* sorted_expert, std::int32_t slots, std::int32_t experts,
                                    std::int32_t* begin) {
  for (std::int32_t e = blockIdx.x * blockDim.x + threadIdx.x; e <= experts; e += gridDim.x * blockDim.x)
    begin[e] = first_of_expert(sorted_expert, slots, e);
}
static __global__ void clear_order(std::int32_t* order, std::int32_t room) {
  for (std::int32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < room; i += gridDim.x * blockDim.x) order[i] = -1;
}
static __global__ void place_slots(OrderTables t, std::int32_t slots, std::int32_t experts, std::int32_t grain,
                                   std::int32_t* order, std::int32_t* place, std::uint64_t* counts) {
  for (std::int32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < slots + experts; i += gridDim.x * blockDim.x) {
    if (i < slots) {
      const std::int32_t expert = t.sorted_expert[i];
      if (expert >= experts) continue;  // dropped
      const std::int32_t at = place_of_sorted(t.begin, expert, i, grain);
      order[at] = t.sorted_slot[i];
      place[t.sorted_slot[i]] = at;
    } else {
      const std::int32_t expert = i - slots;
      counts[expert] = static_cast<std::uint64_t>(t.begin[expert + 1] - t.begin[expert]);
    }
  }
}

}  // namespace detail

/// Keeps its workspace: a repeated size allocates nothing.
class ExpertOrder {
 public:
  ExpertOrder() = default;
  ExpertOrder(const ExpertOrder&) = delete;
  ExpertOrder& operator=(const ExpertOrder&) = delete;
  ~ExpertOrder() { gpu::free_memory(memory_); }

  /// order [room]: slots by expert, the slots of one expert in ascending order, each expert's padded with -1 to a multiple of
  /// `grain`; place [slots]: the index in `order`, -1 for a slot whose `chosen` is `experts` or more (dropped); counts [experts]:
  /// slots of each expert without padding. room >= slots + experts * (grain - 1). All on the GPU; the same bits in every run.
  void assign(const std::int32_t* chosen, std::size_t slots, std::size_t experts, std::size_t grain, std::int32_t* order,
              std::size_t room, std::int32_t* place, std::uint64_t* counts, cudaStream_t stream) {
    const std::int32_t n = weft::detail::narrow<std::int32_t>(slots, "slots"),
                       e = weft::detail::narrow<std::int32_t>(experts, "experts"),
                       g = weft::detail::narrow<std::int32_t>(grain, "rows"),
                       r = weft::detail::narrow<std::int32_t>(room, "room");
    if (room < slots + experts * (grain - 1))
      throw_error<ShapeError>(
          {"expert order: room(", room, ") < slots(", slots, ") + experts(", experts, ") * (grain(", grain, ") - 1)"});
    std::size_t sort_bytes = 0;
    cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, chosen, static_cast<std::int32_t*>(nullptr),
                                               static_cast<const std::int32_t*>(nullptr), static_cast<std::int32_t*>(nullptr), n,
                                               0, bits_of(e), stream),
               "cub::DeviceRadixSort");
    const std::size_t table_bytes = (3 * slots + experts + 1) * sizeof(std::int32_t);
    const std::size_t tables_at = (sort_bytes + 255) / 256 * 256;
    reserve(tables_at + table_bytes, stream);
    auto* const first = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory_) + tables_at);
    const detail::OrderTables tables{first, first + slots, first + 2 * slots, first + 3 * slots};
    detail::clear_order<<<blocks(room), threads, 0, stream>>>(order, r);
    cuda_check(cudaGetLastError(), "clear_order");
    detail::number_slots<<<blocks(slots), threads, 0, stream>>>(tables.slot, place, n);
    cuda_check(cudaGetLastError(), "number_slots");
    cuda_check(cub::DeviceRadixSort::SortPairs(memory_, sort_bytes, chosen, tables.sorted_expert,
                                               static_cast<const std::int32_t*>(tables.slot), tables.sorted_slot, n, 0,
                                               bits_of(e), stream),
               "cub::DeviceRadixSort");
    detail::find_experts<<<blocks(experts + 1), threads, 0, stream>>>(tables.sorted_expert, n, e, tables.begin);
    cuda_check(cudaGetLastError(), "find_experts");
    detail::place_slots<<<blocks(slots + experts), threads, 0, stream>>>(tables, n, e, g, order, place, counts);
    cuda_check(cudaGetLastError(), "place_slots");
  }

 private:
  static constexpr unsigned threads = 256;
  static unsigned blocks(std::size_t items) {
    return static_cast<unsigned>(items == 0 ? 1 : items / threads + 1 < 1024 ? items / threads + 1 : 1024);
  }
  // Sort keys are 0 .. experts; `experts` itself marks dropped slots.
  static int bits_of(std::int32_t experts) {
    int bits = 1;
    while (bits < 31 && (std::int64_t(1) << bits) <= experts) ++bits;
    return bits;
  }
  void reserve(std::size_t bytes, cudaStream_t stream) {
    if (bytes <= bytes_) return;
    if (memory_ != nullptr) {
      cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      gpu::free_memory(memory_);
      memory_ = nullptr, bytes_ = 0;
    }
    cuda_check(cudaMalloc(&memory_, bytes), "cudaMalloc");
    bytes_ = bytes;
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace weft::gpu
