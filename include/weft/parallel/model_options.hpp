// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of a model: what a user may choose when one is made, beside its type.
//
//   DataParallel<models::Gpt> model(mesh, config, {.seed = 3, .compare_every = 0});

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/layer/loss_scale.hpp>
#include <weft/optim/offload.hpp>
#include <weft/parallel/hook/reduce_option.hpp>
#include <weft/parallel/reproducible/option.hpp>

namespace weft {

namespace schedule {
class AnySchedule;
class TimelineRecorder;
}  // namespace schedule
namespace hook {
class Factory;
}

/// How attention meets the keys of other ranks of cp.
enum class ContextMethod : std::uint8_t {
  ring,     ///< keys and values go round while blocks are computed; any number of heads
  ulysses,  ///< ranks change over from tokens to heads, two all-to-alls each way
};

/// How gradients are summed over data ranks that keep all of them: DataParallel, and stage 0 of FullyShardedDataParallel.
struct DataOptions {
  std::size_t first_bucket_bytes = 1u << 20;  ///< the bucket that is ready first is small, so that reduction starts early
  std::size_t bucket_bytes = 25u << 20;       ///< the others close once they reach this
  std::shared_ptr<const hook::Factory> hook = nullptr;  ///< how buckets are summed, where not by a plain all-reduce
};

/// What FullyShardedDataParallel shares out over data ranks, and what lies off the device.
struct ShardOptions {
  /// The stage of ZeRO: 1 shares out the optimizer's state, 2 gradients too, 3 parameters too; 0 nothing, gradients are then
  /// summed as in DataParallel. See zero in parallel/policies.hpp for bytes.
  int stage = 3;
  /// So many copies of the shards (hybrid sharding). The data ranks are `replicate` groups of neighbours; each group shares the
  /// state out, and gradients are added over the groups once a step. Must divide dp.
  std::size_t replicate = 1;
  /// Stages 2 and 3: false keeps whole gradients until the last micro-batch of a step, which costs their memory and saves all
  /// reductions but one.
  bool reduce_each_micro_batch = true;
  /// Stage 3: parameters are gathered as 8-bit integers with a scale for each 256 of them (ZeRO++ qwZ).
  bool quantised_gather = false;
  /// Stage 3: so many neighbours keep a unit's values among them from its first gather of a step on, and later ones ask only
  /// these (ZeRO++ hpZ): P / secondary more bytes a rank. 0: off. Must divide the ranks that share a shard.
  std::size_t secondary = 0;
  /// Optimizer state, under every wrapper, and under stage 3 parameters lie on the device only while they are used.
  Offload offload = {};
};

struct PipelineOptions {
  /// What PipelineParallel runs, such as schedule::zbv, schedule::custom<table>() or schedule::choose("zbv"); null: one forward,
  /// one backward.
  std::shared_ptr<const schedule::AnySchedule> schedule = nullptr;
  std::shared_ptr<schedule::TimelineRecorder> timeline =
      nullptr;  ///< takes the times of this rank's actions in each training step
};

/// In which types and in which order gradients are added, how they are scaled, and what is compared.
struct NumericsOptions {
  /// Training gives the same bits for every dp degree that divides the number of micro-batches, every stage of ZeRO, every
  /// schedule and every pp degree, as long as micro-batches, their size and the threads of a rank are the same: losses,
  /// gradients, norm, updates. Experts may lie over ep where ep * etp is a multiple of cp * tp. Costs, of a rank with k
  /// micro-batches: log2(k) - 1 more copies of the gradients (at least 0), stages 2 and 3 of ZeRO keep whole gradients until the
  /// last micro-batch, and a tied embedding has a second gradient.
  ReproducibleOption reproducible = {};
  /// The type in which gradients are sent and added over data ranks: bfloat16, or float32 (or unset), the gradients' own, which
  /// is float for layers in bfloat16 and float, double for layers in double.
  ReduceOption reduce = {};
  /// FullyShardedDataParallel of a model in bfloat16 or float16: the type in which sums of gradients are kept between
  /// micro-batches and for the optimizer, the model's own or float32. Every sum is made in float, and rounded once for each
  /// micro-batch. Unset: the model's own in stages 1 and 2, which gives 4P + 12P/N and 2P + 14P/N bytes, float32 in stage 3
  /// (16P/N) and in reproducible runs.
  std::optional<DataType> gradient = {};
  std::optional<LossScaleOptions> loss_scale =
      std::nullopt;  ///< gradients are scaled; those of a model in float16 are in any case
  /// An optimizer's first step and each so-many-th one end with a comparison of the parameters that ranks hold alike
  /// (require_equal_parameters); 0: none does. As often a communication hook's sums are compared with plain ones.
  std::uint64_t compare_every = 100;
};

/// What a user may choose when a model is made. All ranks choose alike. Wrappers' types may choose, too (parallel/policies.hpp).
///
///   Model model(mesh, config, {.seed = 1, .shard = {.stage = 2}, .pipeline = {.schedule = schedule::zbv}, .numerics =
///   {.reproducible = true}});
struct ModelOptions {
  WEFT_COLD ~ModelOptions() = default;

  std::uint64_t seed = 1;  ///< of initial weights and dropout
  DataOptions data = {};
  ShardOptions shard = {};
  ContextMethod context = ContextMethod::ring;  ///< ContextParallel: how attention crosses its ranks
  PipelineOptions pipeline = {};
  NumericsOptions numerics = {};

  /// Throws UsageError for choices that exclude each other.
  void check() const;
};

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/parallel/model_options_impl.hpp>
#endif
