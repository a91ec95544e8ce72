// SPDX-License-Identifier: Apache-2.0
// Compiled by test_all_headers.sh. The list of headers is written by CMake.
#include "all_headers.hpp"

// A whole training program in three wrappers: it instantiates the templates of the headers.
#define DEPTH 3
#include "bench/compile_time/program.cpp"

#include <cub/cub.cuh>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

// CUB and weft's types in one kernel: a type that only the host may copy or compare would fail here.
__global__ void sum_of_block(const weft::bfloat16* in, float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const float sum = Reduce(storage).Sum(float(in[threadIdx.x]));
  if (threadIdx.x == 0) *out = sum;
}
