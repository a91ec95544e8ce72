// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two halves of the test double tell each other.

#include <atomic>
#include <cstddef>
#include <functional>

#include "support/fake_nccl/fake.hpp"

namespace fake_nccl {

int device();
int device_of(cudaStream_t stream);
constexpr int greatest_priority = -5;  ///< a smaller number is a higher priority, as in CUDA
int priority_of(cudaStream_t stream);
bool on_device(const void* pointer, std::size_t bytes);
void enqueue(cudaStream_t stream, std::function<void()> task);
std::atomic<int>& stream_count();

}  // namespace fake_nccl
