// SPDX-License-Identifier: Apache-2.0
// A dataset whose load() is not const: the threads of several ranks call it.
// expect: a Dataset has size\(\) const and load\(std::size_t index, Fields::Sample& sample\) const
// mention: Squares
#include <weft/data/loader.hpp>

inline constexpr weft::data::Field<"x", float> x;

struct Squares {
  using Fields = weft::FieldBatch<x>;
  std::size_t size() const { return 100; }
#ifdef WEFT_FAIL
  void load(std::size_t index, Fields::Sample& sample) { sample[x][0] = float(index * index); }
#else
  void load(std::size_t index, Fields::Sample& sample) const { sample[x][0] = float(index * index); }
#endif
};

void go(weft::data::Share share) {
  for (auto&& batch : weft::data::Loader(share, Squares(), {.global_batch = 4})) batch.check();
}
