// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of a logical tensor in files, as strided runs. A checkpoint is written in such parts, and read by intersecting them with
// the runs that another layout gives a rank.
//
//   for_each_overlap(piece.block, item.runs.sorted(), read);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <weft/core/standard.hpp>
#include <weft/engine/runs.hpp>

namespace weft::checkpoint::detail {

using weft::detail::Run;
using weft::detail::Runs;
using weft::detail::Strided;
using weft::detail::StridedRun;

/// Calls f(element of the block, element of this rank, count) for all elements in both. `runs` are sorted by their global
/// positions and do not overlap.
template <class F>
void for_each_overlap(const Strided& block, const std::vector<Run>& runs, F&& f) {
  std::uint64_t i = 0;
  auto run = runs.begin();
  while (i < block.runs && run != runs.end()) {
    const std::uint64_t begin = block.begin_of(i), end = begin + block.run, first = run->global, last = first + run->length;
    if (last <= begin) {
      run =
          std::upper_bound(run, runs.end(), begin, [](std::uint64_t place, const Run& r) { return place < r.global + r.length; });
      continue;
    }
    if (end <= first) {
      const std::uint64_t skipped = (first - end) / block.stride + 1;
      i = skipped >= block.runs - i ? block.runs : i + skipped;
      continue;
    }
    const std::uint64_t from = std::max(begin, first), to = std::min(end, last);
    f(i * block.run + (from - begin), run->local + std::size_t(from - first), to - from);
    if (end <= last) ++i;
    else ++run;
  }
}

enum class Cover { once, wrong, too_many_runs };

/// Checks if the blocks hold each of `elements` elements exactly once. Adjacent blocks of one stride, as ranks leave them, take
/// constant time for any number of runs. Otherwise each run is visited, at most `most_runs` of them.
inline Cover cover(const std::vector<Strided>& blocks, std::uint64_t elements,
                   std::uint64_t most_runs = std::numeric_limits<std::uint64_t>::max()) {
  struct Next {  // the next run of a block
    std::uint64_t begin;
    const Strided* block;
    std::uint64_t i, period;
  };
  std::vector<Next> heap;
  for (const Strided& block : blocks)
    if (block.elements() != 0) heap.push_back({block.first, &block, 0, 0});
  const auto later = [](const Next& a, const Next& b) { return a.begin > b.begin; };
  std::make_heap(heap.begin(), heap.end(), later);
  // A period lasts from a run of a block to its next run. If all its runs belong to blocks of that stride, the next period is
  // equal.
  const Strided* first = nullptr;
  std::uint64_t at = 0, period = 0, period_begin = 0, stride = 0, of_period = 0;
  while (!heap.empty()) {
    if (heap.front().begin != at) return Cover::wrong;
    if (first == nullptr || heap.front().block == first) {
      if (first != nullptr && stride != 0 && at - period_begin == stride) {
        std::uint64_t whole = std::numeric_limits<std::uint64_t>::max(), members = 0;
        for (const Next& next : heap) {
          const bool member = next.period == period;
          members += member;
          whole = std::min(whole, member ? next.block->runs - next.i - 1 : (next.begin - at) / stride);
        }
        if (members == of_period && whole > 0) {
          for (Next& next : heap)
            if (next.period == period) next.i += whole, next.begin += whole * stride;
          at += whole * stride;
          std::make_heap(heap.begin(), heap.end(), later);
        }
      }
      first = heap.front().block;
      period_begin = at;
      stride = first->stride;
      of_period = 0;
      ++period;
    }
    if (most_runs-- == 0) return Cover::too_many_runs;
    std::pop_heap(heap.begin(), heap.end(), later);
    Next& next = heap.back();
    at += next.block->run;
    next.period = period;
    ++of_period;
    if (next.block->stride != stride) stride = 0;
    if (++next.i == next.block->runs) {
      if (next.block == first) first = nullptr;
      heap.pop_back();
      continue;
    }
    next.begin = next.block->begin_of(next.i);
    std::push_heap(heap.begin(), heap.end(), later);
  }
  return at == elements ? Cover::once : Cover::wrong;
}

/// Divides a block into `parts` blocks of about equal size; fewer if it has fewer runs or elements.
inline std::vector<Strided> divided(const Strided& block, std::uint64_t parts) {
  std::vector<Strided> out;
  const std::uint64_t units = block.runs > 1 ? block.runs : block.run;
  parts = std::min(parts, units);
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t from = units / parts * part + std::min(part, units % parts),
                        to = units / parts * (part + 1) + std::min(part + 1, units % parts);
    if (block.runs == 1) out.push_back({block.first + from, to - from, 1, to - from});
    else out.push_back({block.begin_of(from), block.run, to - from, to - from == 1 ? block.run : block.stride});
  }
  return out;
}

}  // namespace weft::checkpoint::detail
