// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <weft/core/standard.hpp>

namespace weft::comm {

/// Tells the processor that this is a spinning loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft::comm
