// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/executor.hpp weft/pipeline/transport.hpp weft/pipeline/stage_channel.hpp weft/pipeline/stages.hpp
// covers: weft/pipeline/chunk.hpp weft/pipeline/model_types.hpp weft/pipeline/any_value.hpp weft/pipeline/schedule/messages.hpp
// Every schedule gives the loss, gradients, norm and logits of one rank, alone and combined with data and tensor parallelism:
// several chunks on a rank, backward in two halves, the V shape with both ends of the model on rank 0 (its tied embedding is then
// one parameter of two chunks), pairs that may overlap, and fewer micro-batches than stages.

#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/transport.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;

struct Case {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
};

const Case layouts[] = {
    {1, {}, 4},        {2, {.pp = 2}, 4},          {2, {.pp = 2}, 8}, {2, {.pp = 2}, 1},          {4, {.pp = 4}, 8},
    {4, {.pp = 4}, 2}, {4, {.tp = 2, .pp = 2}, 4}, {4, {.pp = 2}, 4}, {8, {.tp = 2, .pp = 2}, 4}, {8, {.tp = 2, .pp = 4}, 8},
    {8, {.pp = 4}, 4}};

}  // namespace

TEST_CASE("every schedule, chosen when the program runs") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Model>(config);
  for (const char* name : {"interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"})
    for (const Case& layout : layouts) {
      if (name == std::string("dualpipev") && layout.micro_batches < 2 * layout.degrees.pp) continue;
      INFO(name);
      check_layout<DataParallel<TensorParallel<PipelineParallel<Model>>>>(
          config, reference, layout.world, layout.degrees, layout.micro_batches, 1e-12,
          ModelOptions{.pipeline = {.schedule = schedule::choose(name)}});
    }
}

TEST_CASE("a schedule in the type") {
  const auto config = gpt_config();
  check_layout<DataParallel<TensorParallel<PipelineParallel<Model, schedule::DualPipeV>>>>(config, reference_of<Model>(config), 8,
                                                                                           {.tp = 2, .pp = 2}, 4, 1e-12);
}
