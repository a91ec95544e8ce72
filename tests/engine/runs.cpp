// SPDX-License-Identifier: Apache-2.0
// A list of runs returns its runs unchanged, for every pattern, and divides like a list of single runs.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include <weft/engine/runs.hpp>

using weft::detail::Run;
using weft::detail::Runs;
using weft::detail::Strided;
using weft::detail::StridedRun;

namespace {

bool same(const Run& a, const Run& b) {
  return a.local == b.local && a.global == b.global && a.length == b.length && a.owned == b.owned && a.shared == b.shared;
}

void check_same(const Runs& runs, const std::vector<Run>& list) {
  REQUIRE(runs.size() == list.size());
  CHECK(runs.empty() == list.empty());
  std::size_t i = 0, elements = 0;
  for (const Run& run : runs) {
    CHECK(same(run, list[i]));
    CHECK(same(runs[i], list[i]));
    elements += list[i++].length;
  }
  CHECK(i == list.size());
  CHECK(runs.elements() == elements);
  if (!list.empty()) CHECK(same(runs.front(), list.front()));
}

// Strided runs have the same elements, each at the same two positions.
void check_strided(const Runs& runs, const std::vector<Run>& list, std::size_t row) {
  using Element = std::tuple<std::size_t, std::size_t, bool>;
  std::vector<Element> expected, found;
  const auto add = [](std::vector<Element>& elements, const Run& run) {
    for (std::size_t i = 0; i < run.length; ++i) elements.push_back({run.local + i, run.global + i, run.owned});
  };
  for (const Run& run : list) add(expected, run);
  for (const StridedRun& strided : runs.strided(row)) {
    const Strided local = strided.local(), global = strided.global();
    for (std::size_t i = 0; i < strided.count; ++i) {
      CHECK(same(strided.run(i), {local.begin_of(i), global.begin_of(i), global.run, strided.first.owned, strided.first.shared}));
      add(found, strided.run(i));
    }
    if (local.joined().runs == 1) CHECK(local.begin_of(local.runs) == local.first + local.elements());
  }
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
}

std::vector<Run> cut(const std::vector<Run>& list, std::size_t begin, std::size_t end) {
  std::vector<Run> part;
  for (const Run& run : list) {
    const std::size_t first = std::max(begin, run.local), last = std::min(end, run.local + run.length);
    if (first < last) part.push_back({first - begin, run.global + (first - run.local), last - first, run.owned, run.shared});
  }
  return part;
}

}  // namespace

TEST_CASE("runs hold the elements that were put in, and so do their cuts") {
  std::mt19937 engine(1);
  const auto draw = [&](std::size_t below) { return std::size_t(engine() % below); };
  for (int round = 0; round < 300; ++round) {
    // Repeated patterns, with gaps and padding, an empty run, decreasing positions, and changing flags.
    std::vector<Run> list;
    std::size_t local = draw(4), global = draw(50);
    for (std::size_t pattern = 1 + draw(4); pattern-- > 0;) {
      const std::size_t length = draw(8) == 0 ? 0 : 1 + draw(5), gap = draw(3), stride = length + draw(7);
      const bool owned = draw(4) != 0, shared = draw(4) == 0;
      for (std::size_t count = 1 + draw(6); count-- > 0; local += length + gap, global += stride)
        list.push_back({local, global, length, owned, shared});
      if (draw(5) == 0) global = draw(50);
      if (draw(5) == 0) local = draw(20);
    }
    Runs runs;
    const bool of_rows = draw(2) == 0;
    if (of_rows) {  // the list is a row, and other rows follow
      const std::size_t rows = 1 + draw(5), local_stride = draw(3) == 0 ? draw(9) : local + draw(3), global_stride = 3 + draw(90);
      const std::vector<Run> row = list;
      runs = Runs::of_rows(row, rows, local_stride, global_stride);
      for (std::size_t i = 1; i < rows; ++i)
        for (Run run : row) {
          run.local += i * local_stride, run.global += i * global_stride;
          list.push_back(run);
        }
      if (draw(2) == 0) {
        list.push_back({local * rows + 1, 7, 2});
        runs.push_back(list.back());
      }
    } else {
      for (const Run& run : list) runs.push_back(run);
    }
    check_same(runs, list);
    check_strided(runs, list, 1 + draw(40));
    for (int i = 0; i < 30; ++i) {
      const std::size_t begin = draw(160), end = begin + draw(60);
      const std::vector<Run> expected = cut(list, begin, end);
      check_same(runs.cut(begin, end), expected);
      const std::size_t inner = begin + draw(10);
      check_same(runs.cut(begin, end).cut(inner - begin, 20), cut(expected, inner - begin, 20));
    }
  }
  check_same({{0, 5, 5}}, {{0, 5, 5}});
  check_same({}, {});
  CHECK(Runs::of_rows({}, 3, 1, 1).empty());
}

TEST_CASE("the rows of a column-parallel matrix take the memory of one") {
  Runs runs;
  for (std::size_t row = 0; row < 16384; ++row) runs.push_back({row * 6656, row * 53248 + 6656, 6656});
  CHECK(runs.entries() == 1);
  CHECK(runs.cut(1000, 16384 * 6656 / 2).entries() <= 3);
  const std::vector<Run> row = {{0, 512, 512}, {512, 4608, 512}, {1024, 8704, 512}};  // query, key and value, fused
  CHECK(Runs::of_rows(row, 4096, 1536, 12288).strided(12288).size() == 3);
  CHECK(Runs::of_rows(row, 4096, 1536, 12288).cut(1536 * 7 + 700, 1536 * 4000).entries() <= 6);
}
