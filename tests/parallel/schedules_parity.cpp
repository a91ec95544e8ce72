// SPDX-License-Identifier: Apache-2.0
// Every schedule gives one rank's loss, gradients, norm and logits, alone and beside data and tensor parallelism: several
// chunks on a rank, backward in two halves, the V shape with both ends of the model on rank 0 (its tied embedding is then one
// parameter of two chunks), pairs that may overlap, and fewer micro-batches than stages.

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = nn::BasicGpt<double>;

struct Layout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
};

template <class Schedule>
void check_schedule() {
  const auto config = gpt_config();
  const Reference reference = reference_of<Model>(config);
  const Layout layouts[] = {{1, {}, 4}, {2, {.pp = 2}, 4}, {2, {.pp = 2}, 8}, {2, {.pp = 2}, 1}, {4, {.pp = 4}, 8}, {4, {.pp = 4}, 2}, {4, {.tp = 2, .pp = 2}, 4}, {4, {.pp = 2}, 4}, {8, {.tp = 2, .pp = 2}, 4}, {8, {.tp = 2, .pp = 4}, 8}, {8, {.pp = 4}, 4}};
  for (const Layout& layout : layouts) {
    if (!Schedule::applies(int(layout.degrees.pp), int(layout.micro_batches))) continue;
    check_layout<DataParallel<TensorParallel<PipelineParallel<Model, Schedule>>>>(config, reference, layout.world, layout.degrees, layout.micro_batches, 1e-12);
  }
}

}  // namespace

TEST_CASE("interleaved") { check_schedule<schedule::Interleaved<2>>(); }
TEST_CASE("zero bubble H1") { check_schedule<schedule::ZeroBubbleH1>(); }
TEST_CASE("interleaved zero bubble") { check_schedule<schedule::InterleavedZeroBubble<2>>(); }
TEST_CASE("ZBV") { check_schedule<schedule::Zbv>(); }
TEST_CASE("DualPipeV") { check_schedule<schedule::DualPipeV>(); }
