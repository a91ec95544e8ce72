// SPDX-License-Identifier: Apache-2.0
// Types that declare the placement of their elements: tensors with placements, and no others. Collectives on memory refuse these
// (compile_fail/gradient.cpp).
#include <weft/core/placed.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <weft/tensor/tensor.hpp>

using namespace weft;

namespace {
using Exec = DefaultDevice::execution_space;
using Placed = Tensor<float, Exec, Shard<dp, 0>, Invariant<tp>>;
}  // namespace

static_assert(!is_placed<float> && !is_placed<std::vector<float>> && !is_placed<Tensor<float, Exec>>);
static_assert(is_placed<Placed> && is_placed<Tensor<float, Exec, Replicated<tp>>>);

TEST_CASE("the elements without their placements are a span, which collectives take") {
  DefaultDevice device;
  const Placed x(device, {2, 3});
  static_assert(!is_placed<decltype(raw(x))>);
  CHECK(raw(x).data() == x.data());
  CHECK(raw(x).size() == 6);
}
