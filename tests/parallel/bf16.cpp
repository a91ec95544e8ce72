// SPDX-License-Identifier: Apache-2.0
// A GPT in bfloat16 learns a batch in several layouts. Its losses stay close to those in float, and are the same on every rank.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support/learning.hpp"

using namespace weft;
using namespace weft_test::learning;

TEST_CASE("a GPT in bfloat16 learns like one in float, in every layout alike") {
  const Curve full = on_one_rank<float>(), half = on_one_rank<bfloat16>();
  CHECK(std::abs(full.losses.front() - std::log(50.0)) < 0.2);
  CHECK(full.losses.back() < 0.5 * full.losses.front());
  CHECK(half.losses.back() < 0.5 * half.losses.front());
  CHECK(std::abs(half.losses.front() / full.losses.front() - 1) < 2e-3);  // the first forward comes before any update
  CHECK(std::abs(half.norms.front() / full.norms.front() - 1) < 2e-2);
  CHECK(distance(half, full) < 0.05);
  CHECK(half.skipped == std::vector<bool>(steps, false));

  using Parallel = DataParallel<TensorParallel<PipelineParallel<models::BasicGpt<bfloat16>, schedule::OneForwardOneBackward>>>;
  struct Layout {
    int ranks;
    Degrees degrees;
  };
  for (const Layout& layout :
       {Layout{2, {}}, Layout{2, {.tp = 2}}, Layout{4, {.tp = 4}}, Layout{4, {.pp = 4}}, Layout{8, {.tp = 2, .pp = 2}}}) {
    std::vector<Curve> curves(static_cast<std::size_t>(layout.ranks));
    CHECK(run(RunOptions{.ranks = layout.ranks}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, layout.degrees);
            Parallel model(mesh, config);
            curves[std::size_t(world.rank())] =
                train(model, batch(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), std::size_t(mesh.size(pp{}))));
          }) == 0);
    INFO(layout.ranks << " ranks, tp(" << layout.degrees.tp << ") * pp(" << layout.degrees.pp << ")");
    for (const Curve& curve : curves) CHECK(curve == curves[0]);
    CHECK(std::abs(curves[0].losses.front() / full.losses.front() - 1) < 2e-3);
    CHECK(std::abs(curves[0].norms.front() / full.norms.front() - 1) < 2e-2);
    CHECK(distance(curves[0], full) < 0.05);
  }
}
