// SPDX-License-Identifier: Apache-2.0
#pragma once
// An arena's memory on the calling thread's current GPU. Kokkos would allocate on its own GPU, but the rank may use another.

#include <cstddef>
#include <string>

#include <weft/core/text.hpp>
#include <weft/device/cuda/shared_work.hpp>

namespace weft::gpu {

struct Memory {
  /// Returns null if the memory is full.
  static void* take(std::size_t bytes) {
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, bytes);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    cuda_check(status, "cudaMalloc");
    return block;
  }
  static void before_give_back() { SharedWork::finish_all(); }
  static void give_back(void* block) { free_memory(block); }
  static std::string room() {
    std::size_t left = 0, all = 0;
    cuda_check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    return weft::detail::joined({", ", left, " of ", all, " are free"});
  }
};

}  // namespace weft::gpu
