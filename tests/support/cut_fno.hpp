// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Fourier neural operator of examples/fields over domain axes and its comparison with one rank, on any backend.
//
//   weft_test::check_fno<comm::Threads>({.ranks = 4, .degrees = {.dx = 2, .dy = 2}});

#include "cut_stack.hpp"
#include "examples/fields/fno.hpp"
#include "flow_golden.hpp"

namespace weft_test {

template <comm::Backend Backend>
void check_fno(const UNetLayout& layout) {
  check_cut_stack<::fields::Fno<double>, Backend>(
      layout, {.width = 8, .modes = 2, .layers = 2},
      [](std::size_t first, std::size_t count, const auto& mesh) { return flow_of<2>(first, count, mesh); });
}
template <comm::Backend Backend>
void check_fno_ranks(int world) {
  check_cut_ranks(world, [](const UNetLayout& layout) { check_fno<Backend>(layout); });
}

}  // namespace weft_test
