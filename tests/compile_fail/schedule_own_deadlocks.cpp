// SPDX-License-Identifier: Apache-2.0
// A user's schedule is proven by the compiler: rank 1 wants the second micro batch first and its gradient first.
// expect: this schedule deadlocks
#include <weft/parallel/schedule/own.hpp>

using namespace weft;

template <bool crossed>
constexpr schedule::Table my_table() {
  using schedule::Do;
  schedule::Table table{2, 1, 2, {}, {{0}, {1}}};
  table.orders.push_back({{Do::F, 0, 0}, {Do::B, 0, 0}, {Do::F, 0, 1}, {Do::B, 0, 1}});
  const int first = crossed ? 1 : 0;
  table.orders.push_back({{Do::F, 0, first}, {Do::B, 0, first}, {Do::F, 0, 1 - first}, {Do::B, 0, 1 - first}});
  return table;
}

#ifdef WEFT_FAIL
static_assert(schedule::Own<my_table<true>>::verdict.complete);
#else
static_assert(schedule::Own<my_table<false>>::verdict.runs);
#endif
