// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that the two halves of the test double share.

#include <functional>
#include <memory>

#include "support/fake_nccl/fake.hpp"

namespace fake_nccl {

int device();
std::shared_ptr<Stream> works_of(cudaStream_t stream);
constexpr int greatest_priority = -5;  ///< a smaller number is a higher priority, as in CUDA
int priority_of(cudaStream_t stream);
bool is_recorded(cudaStream_t stream);
/// Work without checks of its accesses.
void enqueue(cudaStream_t stream, std::function<void()> task);
void enqueue(cudaStream_t stream, Task task, const Host& host);

}  // namespace fake_nccl
