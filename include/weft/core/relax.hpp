// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pause for spinning loops, in the instruction of the processor that the program is compiled for.

#include <weft/core/standard.hpp>

namespace weft::detail {

/// A pause inside a spinning loop: a hint to the processor that the thread only polls.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft::detail
