// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runs of a rank's elements in a whole parameter, as a list that takes little memory: runs of one length at equal distances,
// such as the rows of a matrix that is cut along its columns, are stored as one entry. Dividing a dim or sharding a flat array
// leaves only such runs on a rank.
//
//   for (const Run& run : state.runs()) copy(data + run.local, whole + run.global, run.length);
//   state.runs().strided(row)[0].global()   // column-parallel [8, 6] over tp(2), rank 1: {first 3, run 3, runs 8, stride 6}

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <span>
#include <tuple>
#include <vector>

#include <weft/core/inline.hpp>

namespace weft::detail {

/// A contiguous run of a rank's elements and its position in the whole parameter.
struct Run {
  std::size_t local = 0, global = 0, length = 0;
  bool owned = true;    ///< false if another rank of the axis holds the same elements and counts them
  bool shared = false;  ///< other ranks of the axis hold the same elements
};

/// `runs` runs of `run` elements each. The first run begins at element `first`; each begins `stride` elements after the previous
/// one.
struct Strided {
  std::size_t first = 0, run = 0, runs = 0, stride = 0;
  auto key() const { return std::tuple(first, run, runs, stride); }
  friend bool operator==(const Strided& a, const Strided& b) { return a.key() == b.key(); }
  friend bool operator<(const Strided& a, const Strided& b) { return a.key() < b.key(); }

  std::size_t elements() const { return run * runs; }
  std::size_t begin_of(std::size_t i) const { return first + i * stride; }
  /// The same elements as a single run, if the runs are adjacent.
  Strided joined() const { return stride == run ? Strided{first, elements(), 1, elements()} : *this; }
};

/// `count` runs of one length, at equal distances among a rank's elements and in the whole parameter.
struct StridedRun {
  Run first;
  std::size_t count = 1, local_stride = 0, global_stride = 0;  // strides may wrap around: positions may decrease

  Run run(std::size_t i) const {
    return {first.local + i * local_stride, first.global + i * global_stride, first.length, first.owned, first.shared};
  }
  Strided local() const { return {first.local, first.length, count, local_stride}; }
  Strided global() const { return {first.global, first.length, count, global_stride}; }
};

class Runs {
  // One of `members` entries that follow each other and take turns: the runs of a row, `count` rows.
  struct Entry : StridedRun {
    std::size_t members = 1;
  };

 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Run;
    using difference_type = std::ptrdiff_t;
    using pointer = const Run*;
    using reference = Run;

    Iterator() = default;
    Run operator*() const { return at_[member_].run(row_); }
    Iterator& operator++() {
      if (++member_ < at_->members) return *this;
      member_ = 0;
      if (++row_ < at_->count) return *this;
      row_ = 0;
      at_ += at_->members;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    friend Runs;
    explicit Iterator(const Entry* at) : at_(at) {}
    const Entry* at_ = nullptr;
    std::size_t member_ = 0, row_ = 0;
  };
  using value_type = Run;
  using const_iterator = Iterator;

  Runs() = default;
  Runs(std::initializer_list<Run> runs) {
    for (const Run& run : runs) push_back(run);
  }

  /// The runs of a row, in `rows` rows, each at these distances from the one before.
  static Runs of_rows(std::span<const Run> row, std::size_t rows, std::size_t local_stride, std::size_t global_stride);

  Iterator begin() const { return Iterator(entries_.data()); }
  Iterator end() const { return Iterator(entries_.data() + entries_.size()); }
  bool empty() const { return entries_.empty(); }
  Run front() const { return entries_.front().first; }
  std::size_t size() const;
  /// The number of stored entries.
  std::size_t entries() const { return entries_.size(); }
  /// The i-th run, in a time that grows with the entries, not with the runs.
  Run operator[](std::size_t i) const;
  std::size_t elements() const;

  void push_back(const Run& run) { append({{run}}); }

  /// The runs of the local elements [begin, end), counted from `begin`.
  Runs cut(std::size_t begin, std::size_t end) const;
  /// Few strided runs with the same elements, in another order; adjacent runs are joined, and empty ones left out. `row`: the
  /// distance in the whole parameter after which the pattern of runs repeats. The stride of a single run is its length.
  std::vector<StridedRun> strided(std::size_t row) const;
  /// The runs by their positions in the whole parameter.
  std::vector<Run> sorted() const;

 private:
  void append(const Entry& more);

  std::vector<Entry> entries_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/runs_impl.hpp>
#endif
