// SPDX-License-Identifier: Apache-2.0
// A warm step of a Loader allocates nothing, neither on the rank's thread nor on the one that loads.

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include <weft/data/arrays.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/token_windows.hpp>

#include "support/counted_allocations.hpp"

using namespace weft;
using weft_test::allocations;

namespace {

inline constexpr data::Field<"x", float> x;

template <class D>
long of_warm_steps(const D& dataset, std::size_t ahead) {
  data::Loader loader(data::Share{}, dataset, {.global_batch = 8, .epochs = 20, .ahead = ahead});
  long warm = 0, last = 0;
  for (auto&& batch : loader) {
    if (batch.step == 2 * ahead + 2) warm = allocations;
    last = allocations;
  }
  CHECK(warm > 0);
  return last - warm;
}

}  // namespace

TEST_CASE("no allocation in a warm step") {
  const data::Arrays arrays(data::array<x>(std::vector<float>(800, 1.0f), {10}));
  const data::TokenWindows windows(
      data::Tokens::from_bytes("bytes", std::vector<std::uint8_t>(1000, 7), {.type = data::TokenType::byte}), {.sequence = 10});
  for (const std::size_t ahead : {0, 1, 3}) {
    CHECK(of_warm_steps(arrays, ahead) == 0);
    CHECK(of_warm_steps(windows, ahead) == 0);
  }
  Batch batch;
  data::Loader loader(data::Share{}, windows, {.global_batch = 8, .epochs = 2, .ahead = 0});
  long before = 0;
  for (auto&& fields : loader) {
    if (fields.step > 0) before = allocations;
    data::copy_tokens(fields, batch);
    if (fields.step > 0) CHECK(allocations == before);
  }
}
