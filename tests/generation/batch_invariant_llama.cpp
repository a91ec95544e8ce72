// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/model_options.hpp
// ModelOptions::numerics.batch_invariant: Llama over Ulysses and sequence parallelism trains with the bits that it generates; a
// ring over cp is refused.

#include <weft/parallel/model_options.hpp>

#include "generation/invariance.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
models::LlamaConfig config_of() {
  models::LlamaConfig config = llama_config();
  config.layers = 2;
  config.sequence = trained_length;
  config.dropout = 0;
  config.standard_deviation = 0.3;
  return config;
}
using Model = models::BasicLlama<float>;
using Composition = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>>>;
}  // namespace

TEST_CASE("Llama on one rank") {
  CHECK(apart_on_one_rank<Model>(config_of(), true) == 0);
  CHECK(apart_on_one_rank<Model>(config_of(), false) > 0);
}

TEST_CASE("a trainer over cp has the bits of a generator without it, and rows that tp cuts those of the same layout") {
  check_layouts<Composition, DenseMesh>(config_of(), {{2, {.cp = 2}}, {4, {.cp = 2, .pp = 2}, 1}, {2, {.tp = 2}}, {2, {.pp = 2}}},
                                        {.context = ContextMethod::ulysses});
}

TEST_CASE("a ring over cp is refused") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          DenseMesh mesh(world, {.cp = 2});
          const auto made = [&] { Composition model(mesh, config_of(), {.numerics = {.batch_invariant = true}}); };
          const std::string said = message<LayoutError>(made);
          if (said !=
              "weft: numerics.batch_invariant: a ring over cp(2) adds a token's keys in another order than a decode does; use "
              "ContextMethod::ulysses, or cp 1")
            throw Error(said);
        }) == 0);
}
