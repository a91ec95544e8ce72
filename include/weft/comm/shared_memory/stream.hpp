// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streaming copies into memory that another core reads next. A copy that bypasses this core's caches lets the reader fetch from
// memory, which the processor's prefetcher foresees. Modified lines in another core's cache come one by one, at half the speed,
// or at a twentieth if the two cores share no cache. Short messages arrive sooner through the caches.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/core/standard.hpp>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace weft::comm::shared_memory {

/// Copies of at least this many bytes stream: measured, docs/benchmarks/2026-11-21-collectives.md.
inline constexpr std::size_t stream_bytes = 16384;

/// Copies `bytes` bytes; `to` and `from` must not overlap. Other threads see the copy before any later write of this thread.
inline void streaming_copy(void* to, const void* from, std::size_t bytes) {
#ifdef __SSE2__
  constexpr std::size_t line = 64;  // only whole lines are written without being read
  auto* out = static_cast<std::byte*>(to);
  auto* in = static_cast<const std::byte*>(from);
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  if (bytes >= head + line) {
    std::memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    for (; bytes >= line; out += line, in += line, bytes -= line) {
      auto* target = reinterpret_cast<__m128i*>(out);
      const auto* source = reinterpret_cast<const __m128i*>(in);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
  }
  std::memcpy(out, in, bytes);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace weft::comm::shared_memory
