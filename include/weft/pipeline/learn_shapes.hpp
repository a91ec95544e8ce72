// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of the messages between a pipeline's stages, found by a forward of the whole model outside the rehearsal's records
// and counts.
//
//   learn_shapes(batch, schedule, ranks, accumulator, stage_of, shapes);

#include <cstddef>
#include <span>

#include <weft/engine/gradient_accumulator.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stage_shapes.hpp>
#include <weft/pipeline/step_batch.hpp>

namespace weft::detail {

/// Adds the shapes for the micro-batches of the batch whose sizes are new. `ranks`: of the pipeline; `stage_of`: the stage of
/// each unit.
void learn_shapes(const StepBatch& batch, const schedule::AnySchedule& schedule, int ranks, GradientAccumulator& accumulator,
                  std::span<const std::size_t> stage_of, StageShapes& shapes);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/learn_shapes_impl.hpp>
#endif
