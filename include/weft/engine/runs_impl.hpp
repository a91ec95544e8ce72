// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/runs.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdint>
#include <map>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/runs.hpp>

namespace weft::detail {

WEFT_INLINE Runs Runs::of_rows(std::span<const Run> row, std::size_t rows, std::size_t local_stride, std::size_t global_stride) {
  Runs all;
  for (const Run& run : row)
    if (rows > 0) all.entries_.push_back({{run, rows, local_stride, global_stride}, row.size()});
  return all;
}

WEFT_INLINE std::size_t Runs::size() const {
  std::size_t count = 0;
  for (const Entry& entry : entries_) count += entry.count;
  return count;
}

WEFT_INLINE Run Runs::operator[](std::size_t i) const {
  const Entry* all = entries_.data();
  for (; i >= all->members * all->count; all += all->members) i -= all->members * all->count;
  return all[i % all->members].run(i / all->members);
}

WEFT_INLINE std::size_t Runs::elements() const {
  std::size_t count = 0;
  for (const Entry& entry : entries_) count += entry.count * entry.first.length;
  return count;
}

// Joins it with the last entry where it goes on as that does.
WEFT_INLINE void Runs::append(const Entry& more) {
  Entry* const last = entries_.empty() ? nullptr : &entries_.back();
  const auto alike = [](const Run& a, const Run& b) {
    return a.length == b.length && a.owned == b.owned && a.shared == b.shared;
  };
  if (last == nullptr || last->members > 1 || more.members > 1 || !alike(last->first, more.first))
    return entries_.push_back(more);
  const Run end = last->run(last->count - 1);
  const std::size_t local = more.first.local - end.local, global = more.first.global - end.global;
  const auto strides = [&](const Entry& of) { return of.count == 1 || (of.local_stride == local && of.global_stride == global); };
  if (!strides(*last) || !strides(more)) return entries_.push_back(more);
  last->local_stride = local, last->global_stride = global;
  last->count += more.count;
}

WEFT_INLINE Runs Runs::cut(std::size_t begin, std::size_t end) const {
  Runs part;
  const auto add = [&](const Entry* all, std::size_t row) {
    for (std::size_t member = 0; member < all->members; ++member) {
      const Run run = all[member].run(row);
      const std::size_t first = std::max(begin, run.local), last = std::min(end, run.local + run.length);
      if (first < last) part.push_back({first - begin, run.global + (first - run.local), last - first, run.owned, run.shared});
    }
  };
  const Entry* const stop = entries_.data() + entries_.size();
  for (const Entry* all = entries_.data(); all != stop; all += all->members) {
    // A row has the places [least, most). Rows that do not overlap are whole between those of `begin` and `end`.
    std::size_t least = SIZE_MAX, most = 0, shortest = SIZE_MAX;
    for (const Entry* of = all; of != all + all->members; ++of) {
      least = std::min(least, of->first.local), most = std::max(most, of->first.local + of->first.length);
      shortest = std::min(shortest, of->first.length);
    }
    const std::size_t stride = all->local_stride;
    std::size_t row = 0, rows = all->count;
    if (shortest > 0 && stride >= most - least && stride <= (SIZE_MAX - most) / rows) {
      if (begin >= most) row = std::min(rows, (begin - most) / stride + 1);
      rows = std::min(rows, end > least ? (end - least - 1) / stride + 1 : 0);
      if (row < rows && least + row * stride < begin) add(all, row++);
      const std::size_t whole = rows > row && most + (rows - 1) * stride > end ? rows - 1 : rows;
      for (const Entry* of = all; whole > row && of != all + all->members; ++of) {
        Entry kept = *of;
        kept.first = of->run(row);
        kept.first.local -= begin;
        kept.count = whole - row;
        part.append(kept);
      }
      row = std::max(row, whole);
    }
    for (; row < rows; ++row) add(all, row);
  }
  return part;
}

WEFT_COLD WEFT_INLINE std::vector<StridedRun> Runs::strided(std::size_t row) const {
  std::vector<StridedRun> all;
  std::map<std::tuple<std::size_t, std::size_t, bool>, std::size_t> open;  // by position in the row and length
  for (auto next = begin(); next != end();) {
    Run run = *next++;
    for (; next != end(); ++next) {
      const Run more = *next;
      if (more.global != run.global + run.length || more.local != run.local + run.length || more.owned != run.owned) break;
      run.length += more.length;
    }
    if (run.length == 0) continue;
    const auto [at, added] = open.try_emplace({row > 0 ? run.global % row : run.global, run.length, run.owned}, all.size());
    if (!added) {
      StridedRun& last = all[at->second];
      if (last.count == 1 && run.global > last.first.global && run.local > last.first.local) {
        last.global_stride = run.global - last.first.global;
        last.local_stride = run.local - last.first.local;
      }
      const Run following = last.run(last.count);
      if (run.global == following.global && run.local == following.local) {
        ++last.count;
        continue;
      }
      at->second = all.size();
    }
    all.push_back({run, 1, run.length, run.length});
  }
  for (StridedRun& one : all)
    if (one.count == 1) one.local_stride = one.global_stride = one.first.length;
  return all;
}

WEFT_COLD WEFT_INLINE std::vector<Run> Runs::sorted() const {
  std::vector<Run> runs(begin(), end());
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.global < b.global; });
  return runs;
}

}  // namespace weft::detail
