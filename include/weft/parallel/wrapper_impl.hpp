// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/wrapper.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/engine/plain_accumulator.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/recheck.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE ModelOptions with_store(const ModelOptions& given, int rank, bool rehearsed) {
  given.check();
  ModelOptions options = given;
  if (rehearsed && options.shard.offload.make) options.shard.offload.store = std::make_shared<RehearsedStore>();
  if (!options.shard.offload.store) options.shard.offload.store = make_store(options.shard.offload, rank);
  return options;
}

WEFT_COLD WEFT_INLINE StageSettings stage_settings(DefaultDevice& device, schedule::AnySchedule schedule,
                                                   const ModelOptions& options) {
  if (options.numerics.batch_invariant) {
    if constexpr (!kernels::detail::on_host<DefaultDevice::execution_space>)
      throw_error<UsageError>(
          {"numerics.batch_invariant: libraries of GPUs choose a kernel by the number of rows, so its results "
           "are for hosts: build weft for hosts, or leave the option out"});
    device.make_batch_invariant();
  }
  const auto reproducible = options.numerics.reproducible.accumulator();
  std::shared_ptr<GradientAccumulator> accumulator =
      reproducible ? reproducible(device) : std::make_shared<PlainAccumulator<Stages::Exec>>(device);
  std::shared_ptr<Recheck> recheck;
  if (options.numerics.recheck_every != 0) {
    auto recorded = std::make_shared<RecordedGradients<Stages::Exec>>(device, std::move(accumulator));
    recheck = std::make_shared<Recheck>(options.numerics.recheck_every, recorded);
    accumulator = std::move(recorded);
  }
  if (options.numerics.trace_nonfinite || device.proof() != nullptr)
    accumulator = std::make_shared<NonfiniteTrace<Stages::Exec>>(device, std::move(accumulator));
  return {.schedule = std::move(schedule),
          .accumulator = std::move(accumulator),
          .layers = options.pipeline.layers,
          .timeline = options.pipeline.timeline.get(),
          .freeze = options.freeze,
          .recheck = std::move(recheck),
          .reproducible_degree = options.numerics.reproducible_degree,
          .whole_rows = options.numerics.batch_invariant && options.context == ContextMethod::ring,
          .on_host = options.activations.on_host,
          .lora = options.lora};
}

}  // namespace weft::detail
