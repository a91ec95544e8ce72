// SPDX-License-Identifier: Apache-2.0
// A Fourier neural operator over domain axes: losses, gradients and steps are those of one rank.

#include "support/cut_fno.hpp"

#include <weft/comm/threads.hpp>

using namespace weft_test;

TEST_CASE("a neural operator over domain axes equals one rank") {
  check_fno_ranks<comm::Threads>(2);
  check_fno_ranks<comm::Threads>(4);
  check_fno<comm::Threads>({8, {.tp = 2, .dx = 2, .dy = 2}});
  check_fno<comm::Threads>({8, {.dp = 2, .dx = 2, .dy = 2}, {.shard = {.stage = 3, .over_domain = true}}});
}
