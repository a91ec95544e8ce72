// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options and batches of a proof. Definitions for parallel/proof_step.hpp.

#include <weft/core/text.hpp>
#include <weft/parallel/proof_step.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>

namespace weft::detail {

/// Refuses a stage of ZeRO that other options of the program do not allow.
WEFT_COLD WEFT_INLINE void require_proven_stage(int stage, const ModelOptions& options) {
  const ShardOptions& shard = options.shard;
  const bool short_gradient = options.numerics.gradient && size_of(*options.numerics.gradient) == 2;
  const int least = shard.quantised_gather || shard.secondary != 0                                               ? 3
                    : shard.replicate != 1 || shard.over_domain || shard.quantised_reduce != 0 || short_gradient ? 1
                                                                                                                 : 0,
            most = options.data.hook ? 0 : 3;
  if (stage < least || stage > most)
    throw_error<LayoutError>({"stage ", stage, " of ZeRO: the program's options (shard, data.hook, numerics.gradient) are for ",
                              least == most ? "stage " : "stages ", least, least == most ? "" : joined({" to ", most})});
}

WEFT_COLD WEFT_INLINE void choose_options(DefaultDevice& device, ModelOptions& options, const ModelOptions& fixed, bool sharded,
                                          bool pipelined) {
  const bool stage = sharded && fixed.shard.stage == open_stage,
             schedule = pipelined && fixed.pipeline.schedule == nullptr && options.pipeline.schedule == nullptr;
  const auto note = [&](auto& notes) {
    notes.stage_is_open = notes.stage_is_open || stage;
    notes.over_domain = notes.over_domain || (stage && options.shard.over_domain);
    notes.schedule_is_open = notes.schedule_is_open || schedule;
  };
  if (Proof* const proof = device.proof(); proof != nullptr) {
    options.numerics.recheck_every = 0;  // one rank is among the layouts, and all of them are compared anyway
    const std::lock_guard lock(proof->notes().mutex);
    note(proof->notes());
  } else {
    note(*device.rehearsal());
  }
  using Schedule = ProofLayout::Schedule;
  const ProofLayout& layout = device.proof() != nullptr ? device.proof()->layout() : *device.rehearsal()->layout;
  if (stage && layout.stage >= 0) {
    require_proven_stage(layout.stage, options);
    options.shard.stage = layout.stage;
  }
  if (!schedule) return;
  if (layout.schedule == Schedule::gpipe) options.pipeline.schedule = schedule::gpipe;
  if (layout.schedule == Schedule::zero_bubble_h1) options.pipeline.schedule = schedule::zero_bubble_h1;
  if (layout.schedule == Schedule::zbv) options.pipeline.schedule = schedule::zbv;
}

WEFT_COLD WEFT_INLINE void prove_field(Proof& proof, const std::string& name, std::size_t first, std::size_t samples,
                                       std::span<const double> values) {
  const std::size_t each = samples == 0 ? 0 : values.size() / samples;
  for (std::size_t sample = 0; sample < samples && each != 0; ++sample) {
    const auto part = values.subspan(sample * each, each);
    proof.note_part(ProofPhase::batch, name, first + sample, {part.begin(), part.end()});
  }
}

WEFT_COLD WEFT_INLINE std::vector<double> given_field(const Proof& proof, const std::string& name, std::size_t& samples) {
  std::vector<double> all;
  const auto at = proof.batches->tensors.find({proof.step(), ProofPhase::batch, 0, name});
  if (at == proof.batches->tensors.end()) return all;
  samples = at->second.parts.size();
  for (const auto& [sample, values] : at->second.parts) all.insert(all.end(), values.begin(), values.end());
  return all;
}

}  // namespace weft::detail
