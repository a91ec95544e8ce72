// SPDX-License-Identifier: Apache-2.0
#pragma once
// From options to a valid run: the layout is checked against the rules.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <weft/comm/agree.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "data.hpp"
#include "options.hpp"

namespace train_gpt {

/// Compares the options and the data of all ranks, except options for output. Throws UsageError. Collective.
inline void require_same_run(const weft::Communicator& ranks, const Options& o) {
  weft::agree(ranks, {{"--seed", o.seed},
                      {"--steps", o.steps},
                      {"--model", o.model},
                      {"--layers", o.layers},
                      {"--width", o.width},
                      {"--heads", o.heads},
                      {"--kv-heads", o.kv_heads},
                      {"--intermediate", o.intermediate},
                      {"--sequence", o.sequence},
                      {"--experts", o.experts},
                      {"--top-k", o.top_k},
                      {"--vocabulary", o.vocabulary},
                      {"--dropout", o.dropout},
                      {"--dp", o.dp},
                      {"--tp", o.tp},
                      {"--cp", o.cp},
                      {"--pp", o.pp},
                      {"--ep", o.ep},
                      {"--etp", o.etp},
                      {"--vpp", o.vpp},
                      {"--zero", o.zero},
                      {"--replicate", o.replicate},
                      {"--sequence-parallel", o.sequence_parallel},
                      {"--piece-bytes", o.piece_bytes},
                      {"--loss-chunks", o.loss_chunks},
                      {"--reproducible", o.reproducible},
                      {"--batch-invariant", o.batch_invariant},
                      {"--trace-nonfinite", o.trace_nonfinite},
                      {"--recheck", o.recheck},
                      {"--schedule", o.schedule},
                      {"--pp-layers", o.pp_layers},
                      {"--context", o.context},
                      {"--recompute", o.recompute},
                      {"--activations", o.activations},
                      {"--offload", o.offload},
                      {"--precision", o.precision},
                      {"--micro-batch", o.micro_batch},
                      {"--global-batch", o.global_batch},
                      {"--optimizer", o.optimizer},
                      {"--learning-rate", o.learning_rate},
                      {"--min-learning-rate", o.min_learning_rate},
                      {"--warmup", o.warmup},
                      {"--beta1", o.beta1},
                      {"--beta2", o.beta2},
                      {"--weight-decay", o.weight_decay},
                      {"--clip", o.clip},
                      {"--ema", o.ema},
                      {"--weights", o.weights_text()},
                      {"--validation-fraction", o.validation_fraction},
                      {"the files of --validation", o.validation_identity.digest_text()},
                      {"--tokenizer", o.tokenizer},
                      {"--chat", o.chat},
                      {"--balance-cp", o.balance_cp},
                      {"--validate-every", o.validate_every},
                      {"--sample", o.sample},
                      {"--prompt", o.prompt},
                      {"--load", o.load},
                      {"--export", o.export_folder},
                      {"--lora", o.lora},
                      {"--lora-alpha", o.lora_alpha},
                      {"--lora-dropout", o.lora_dropout},
                      {"--adapters", o.adapters},
                      {"--export-adapters", o.export_adapters},
                      {"the data", std::to_string(o.data_identity->bytes) + " bytes, digest " + o.data_identity->digest_text()}});
}

/// Default number of sequences per step: 8, or the next number that the ranks can divide.
inline std::int64_t global_batch_of(const Options& o, std::int64_t dp) {
  if (o.global_batch) return *o.global_batch;
  const std::int64_t unit = dp * o.micro_batch.value_or(1);
  return (8 + unit - 1) / unit * unit;
}

/// Default number of sequences per micro-batch: the whole share; under a pipeline a part of it that gives at least two
/// micro-batches per stage.
inline std::int64_t micro_batch_of(const Options& o, std::int64_t share) {
  if (o.micro_batch) return *o.micro_batch;
  if (o.reproducible) return 1;  // the division of the work must be the same in all layouts that are compared
  if (o.pp == 1) return share;
  std::int64_t micro_batches = std::min(share, 2 * o.pp);
  while (share % micro_batches != 0) ++micro_batches;
  return share / micro_batches;
}

/// The schedule that the options name. Throws UsageError or LayoutError.
inline std::shared_ptr<const weft::schedule::AnySchedule> schedule_of(const Options& o) {
  if (o.schedule.ends_with(".csv")) {
    if (o.vpp)
      throw weft::UsageError(o.program + ": --vpp beside --schedule " + o.schedule +
                             ": the file gives the number of stages of a rank");
    return weft::schedule::choose_file(o.schedule);
  }
  return weft::schedule::choose(o.schedule, int(o.vpp.value_or(0)));
}

/// Sequence parallelism and experts divide the tokens of every sequence over tp, including those of a sample.
inline void require_sequence(const Options& o) {
  const std::int64_t ranks = o.tp * o.cp;
  if ((o.sequence_parallel || o.model == "mixtral") && o.sequence % ranks != 0)
    throw weft::LayoutError("sequence(" + std::to_string(o.sequence) + ") % (tp(" + std::to_string(o.tp) + ") * cp(" +
                            std::to_string(o.cp) +
                            ")) != 0: " + (o.sequence_parallel ? "sequence parallelism gives" : "a mixture of experts needs") +
                            " as many tokens on every rank of tp; sequence can be " +
                            weft::mesh_layout::nearest_multiples(std::size_t(o.sequence), std::size_t(ranks)));
}

/// Checks the layout against every rule, and sets the options that were left open. Throws LayoutError, the same on every rank.
inline weft::mesh_layout::ResolvedLayout resolve_layout(Options& o, std::size_t world) {
  const auto schedule = schedule_of(o);
  if (!o.etp) o.etp = o.model == "mixtral" ? o.tp : 1;
  weft::mesh_layout::Layout layout{.world = std::int64_t(world),
                                   .tp = o.tp,
                                   .cp = o.cp,
                                   .pp = o.pp,
                                   .ep = o.ep,
                                   .etp = o.etp,
                                   .dp = o.dp,
                                   .vpp = schedule->chunks(),
                                   .sequence_parallel = o.sequence_parallel,
                                   .whole_groups = false,
                                   .layers = o.layers,
                                   .heads = o.heads,
                                   .kv_heads = o.kv_heads,
                                   .stage_layers = o.stage_layers(),
                                   .sequence = o.sequence,
                                   .ulysses = o.context == "ulysses"};
  const auto dp = std::int64_t(weft::mesh_layout::resolve(layout).dp);  // first the degrees, since the following depends on dp
  o.global_batch = global_batch_of(o, dp);
  o.micro_batch = micro_batch_of(o, *o.global_batch % dp == 0 ? *o.global_batch / dp : 1);
  o.dp = dp;
  o.ranks = std::int64_t(world);
  if (!o.kv_heads) o.kv_heads = o.heads;
  layout.global_batch = o.global_batch;
  layout.micro_batch = *o.micro_batch;
  const weft::mesh_layout::ResolvedLayout resolved = weft::mesh_layout::resolve(layout);
  require_sequence(o);
  schedule->table(int(o.pp), int(resolved.micro_batches));  // checks the schedule's limits
  o.chunks = schedule->chunks();
  return resolved;
}

}  // namespace train_gpt
