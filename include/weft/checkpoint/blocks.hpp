// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of a logical tensor: runs of equal length at equal distances. Dividing a dim or sharding a flat array leaves only such
// runs on a rank. A checkpoint is written as blocks, and read by intersecting them with the runs that another layout gives a
// rank.
//
//   blocks_of(state.runs(), row)   // column-parallel [8, 6] over tp(2): rank 1 has {first 3, run 3, runs 8, stride 6}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>
#include <weft/engine/parameter_info.hpp>

namespace weft::checkpoint::detail {

using weft::detail::Run;
using weft::detail::Runs;

/// `runs` runs of `run` elements each. The first run begins at element `first`; each begins `stride` elements after the previous
/// one.
struct Block {
  std::uint64_t first = 0, run = 0, runs = 0, stride = 0;
  friend bool operator<(const Block& a, const Block& b) {
    return std::tie(a.first, a.run, a.runs, a.stride) < std::tie(b.first, b.run, b.runs, b.stride);
  }

  std::uint64_t elements() const { return run * runs; }
  std::uint64_t begin_of(std::uint64_t i) const { return first + i * stride; }
};

/// A block and its position among this rank's elements: its i-th run begins at local + i * local_stride.
struct LocalBlock {
  Block block;
  std::size_t local = 0, local_stride = 0;
  bool owned = true;  ///< if several ranks hold the elements, this one counts them
};

/// Combines the runs into few blocks. `row`: the distance in the tensor after which the pattern of runs repeats.
inline std::vector<LocalBlock> blocks_of(const Runs& runs, std::uint64_t row) {
  std::vector<LocalBlock> blocks;
  std::map<std::tuple<std::uint64_t, std::uint64_t, bool>, std::size_t> open;  // by position in the row and length
  for (auto next = runs.begin(); next != runs.end();) {
    Run run = *next++;
    for (; next != runs.end(); ++next) {
      const Run more = *next;
      if (more.global != run.global + run.length || more.local != run.local + run.length || more.owned != run.owned) break;
      run.length += more.length;
    }
    if (run.length == 0) continue;
    const auto [at, added] = open.try_emplace({row > 0 ? run.global % row : run.global, run.length, run.owned}, blocks.size());
    if (!added) {
      LocalBlock& all = blocks[at->second];
      if (all.block.runs == 1 && run.global > all.block.first && run.local > all.local) {
        all.block.stride = run.global - all.block.first;
        all.local_stride = run.local - all.local;
      }
      if (run.global == all.block.begin_of(all.block.runs) && run.local == all.local + all.block.runs * all.local_stride) {
        ++all.block.runs;
        continue;
      }
      at->second = blocks.size();
    }
    blocks.push_back({{run.global, run.length, 1, run.length}, run.local, run.length, run.owned});
  }
  for (LocalBlock& all : blocks)
    if (all.block.runs == 1) {
      all.block.stride = all.block.run;
      all.local_stride = all.block.run;
    }
  return blocks;
}

/// Calls f(element of the block, element of this rank, count) for all elements in both. `runs` are sorted by their global
/// positions and do not overlap.
template <class F>
void for_each_overlap(const Block& block, const std::vector<Run>& runs, F&& f) {
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
inline Cover cover(const std::vector<Block>& blocks, std::uint64_t elements,
                   std::uint64_t most_runs = std::numeric_limits<std::uint64_t>::max()) {
  struct Next {  // the next run of a block
    std::uint64_t begin;
    const Block* block;
    std::uint64_t i, period;
  };
  std::vector<Next> heap;
  for (const Block& block : blocks)
    if (block.elements() != 0) heap.push_back({block.first, &block, 0, 0});
  const auto later = [](const Next& a, const Next& b) { return a.begin > b.begin; };
  std::make_heap(heap.begin(), heap.end(), later);
  // A period lasts from a run of a block to its next run. If all its runs belong to blocks of that stride, the next period is
  // equal.
  const Block* first = nullptr;
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
inline std::vector<LocalBlock> divided(const LocalBlock& whole, std::uint64_t parts) {
  std::vector<LocalBlock> out;
  const Block& block = whole.block;
  const std::uint64_t units = block.runs > 1 ? block.runs : block.run;
  parts = std::min(parts, units);
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t from = units / parts * part + std::min(part, units % parts),
                        to = units / parts * (part + 1) + std::min(part + 1, units % parts);
    LocalBlock piece = whole;
    if (block.runs > 1) {
      piece.block.first = block.begin_of(from);
      piece.block.runs = to - from;
      piece.local = whole.local + from * whole.local_stride;
      if (piece.block.runs == 1) piece.block.stride = piece.local_stride = block.run;
    } else {
      piece.block = {block.first + from, to - from, 1, to - from};
      piece.local = whole.local + from;
      piece.local_stride = to - from;
    }
    out.push_back(piece);
  }
  return out;
}

}  // namespace weft::checkpoint::detail
