// SPDX-License-Identifier: Apache-2.0
// Rehearsals compared with real ranks for the models of examples/06_classify, with convolutions and BatchNorm among their layers,
// and for a user's Module with a loss.

#include "plan/rehearsed.hpp"
#include "support/image_models.hpp"

using namespace weft_test;

namespace {
template <class Model>
using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>;
}

TEST_CASE("the example's networks: a rehearsed rank keeps, computes and sends the same as the real one") {
  for (const Case& c : {Case{.micro_batches = 2}, Case{.dp = 2, .zero = 3}, Case{.dp = 2, .tp = 2, .zero = 1},
                        Case{.pp = 2, .micro_batches = 4}, Case{.dp = 2, .pp = 2, .zero = 2, .micro_batches = 2}}) {
    check<Parallel<Network>>(Network::Config(), c);
    check<Parallel<Transformer>>(Transformer::Config(), c);
  }
}
TEST_CASE("a Module with a loss: a rehearsed rank keeps, computes and sends the same as the real one") {
  for (const Case& c :
       {Case{.micro_batches = 2}, Case{.dp = 2, .zero = 0}, Case{.dp = 2, .zero = 3}, Case{.dp = 2, .tp = 2, .zero = 2}})
    check<FullyShardedDataParallel<TensorParallel<MlpModule, Invariant<tp>>>, Mesh<dp, tp>>(MlpModule::Config(), c);
}
