// SPDX-License-Identifier: Apache-2.0
// Under numerics.reproducible_degree processes connected by TCP have the bits of one rank, over cp and tp.

#include "support/reproducible_degree.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

TEST_CASE("cp and tp over TCP in float") {
  using Model = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>>>>;
  using Grid = Mesh<dp, cp, tp, pp>;
  const auto world = std::size_t(runtime::launch_from_environment().world);
  check_same_bits<Model, Grid, comm::Tcp>(degree_gpt(), {{.cp = world}, {.cp = 2, .tp = world / 2}});
}
