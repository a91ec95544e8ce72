// SPDX-License-Identifier: Apache-2.0
#pragma once
// The number of allocations from the host so far, in all threads. One file of a program includes this header: it replaces
// operator new.
//
//   const long before = weft_test::allocations;

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace weft_test {
inline std::atomic<long> allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++weft_test::allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
