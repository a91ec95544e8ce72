// SPDX-License-Identifier: Apache-2.0
// U-Nets over domain axes, in two and three dims, equal one rank in losses, gradients and steps: beside dp, tp, pp and ZeRO.
#include "support/unet.hpp"

using namespace weft_test;

namespace {

using Plane = UNetPlane;
using Space = FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<UNet<3>>, dx, dy, dz>>>;
constexpr auto plane = unet_plane;
constexpr Axes<dp, tp, pp, dx, dy, dz> space;

}  // namespace

TEST_CASE("a U-Net over two domain axes") {
  check_unet<2, Plane>(plane, {1, {}});
  check_unet<2, Plane>(plane, {2, {.dx = 2}});
  check_unet<2, Plane>(plane, {4, {.dx = 2, .dy = 2}});
  check_unet<2, Plane>(plane, {3, {.dy = 3}});
}
TEST_CASE("beside dp, tp, ZeRO and pp") {
  check_unet<2, Plane>(plane, {8, {.tp = 2, .dx = 2, .dy = 2}});
  check_unet<2, Plane>(plane, {4, {.dp = 2, .dx = 2}, {.shard = {.stage = 2}}});
  check_unet<2, Plane>(plane, {8, {.tp = 2, .dp = 2, .dx = 2}, {.shard = {.stage = 3}}});
  check_unet<2, Plane>(plane, {4, {.pp = 2, .dx = 2}});
}
TEST_CASE("a U-Net over three domain axes") {
  check_unet<3, Space>(space, {8, {.dx = 2, .dy = 2, .dz = 2}});
  check_unet<3, Space>(space, {4, {.tp = 2, .dz = 2}});
  check_unet<3, Space>(space, {4, {.pp = 2, .dz = 2}});
  check_unet<3, Space>(space, {8, {.dp = 2, .dy = 2, .dz = 2}, {.shard = {.stage = 3}}});
}
