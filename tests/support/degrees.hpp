// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layouts that tests try.

#include <cstddef>

#include <weft/mesh/mesh.hpp>

namespace weft_test {

/// f(degrees, dp) for every (dp, tp, pp) whose product is `world`.
template <class F>
void for_each_degrees(std::size_t world, F&& f) {
  for (std::size_t tensor = 1; tensor <= world; tensor *= 2)
    for (std::size_t pipeline = 1; tensor * pipeline <= world; pipeline *= 2)
      if (world % (tensor * pipeline) == 0) f(weft::Degrees{.tp = tensor, .pp = pipeline}, world / (tensor * pipeline));
}

}  // namespace weft_test
