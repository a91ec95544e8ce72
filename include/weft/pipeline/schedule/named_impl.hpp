// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/schedule/named.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/pipeline/schedule/named.hpp>

namespace weft::schedule {

WEFT_INLINE Table named_table(std::string_view name, int ranks, int micro_batches, int chunks) {
  if (name == GPipe::name) return detail::fixed_table<GPipe>(ranks, micro_batches, chunks);
  if (name == OneForwardOneBackward::name) return detail::fixed_table<OneForwardOneBackward>(ranks, micro_batches, chunks);
  if (name == ZeroBubbleH1::name) return detail::fixed_table<ZeroBubbleH1>(ranks, micro_batches, chunks);
  if (name == Zbv::name) return detail::fixed_table<Zbv>(ranks, micro_batches, chunks);
  if (name == DualPipeV::name) return detail::fixed_table<DualPipeV>(ranks, micro_batches, chunks);
  if (name == Interleaved<2>::name) return detail::looped_table(name, ranks, micro_batches, chunks, detail::interleaved_order);
  if (name == InterleavedZeroBubble<2>::name)
    return detail::looped_table(name, ranks, micro_batches, chunks, detail::zero_bubble_order);
  throw UsageError("unknown schedule '" + std::string(name) + "'; the schedules are " + std::string(names));
}

}  // namespace weft::schedule

namespace weft::schedule::detail {

WEFT_INLINE int named_chunks(std::string_view name, int chunks) {
  if (name == Interleaved<2>::name || name == InterleavedZeroBubble<2>::name) {
    if (chunks < 0)
      throw LayoutError("schedule " + std::string(name) + " with chunks(" + std::to_string(chunks) + "): at least 1");
    return chunks == 0 ? 2 : chunks;
  }
  return named_table(name, 2, 8, chunks).chunks;  // all of these schedules take these numbers
}

}  // namespace weft::schedule::detail
