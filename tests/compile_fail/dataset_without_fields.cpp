// SPDX-License-Identifier: Apache-2.0
// A dataset that does not declare the fields of its samples.
// expect: a Dataset names its fields: using Fields = weft::FieldBatch
// mention: Squares
#include <weft/data/loader.hpp>

inline constexpr weft::data::Field<"x", float> x;

struct Squares {
#ifndef WEFT_FAIL
  using Fields = weft::FieldBatch<x>;
#endif
  std::size_t size() const { return 100; }
  void load(std::size_t index, auto& sample) const { sample[x][0] = float(index * index); }
};

void go(weft::data::Share share) {
  for (auto&& batch : weft::data::Loader(share, Squares(), {.global_batch = 4})) batch.check();
}
