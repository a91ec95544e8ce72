// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check that the loss of a model of one unit, such as a Module, is a sum over samples: forwards of a few samples, once and
// twice in one batch, before a training step. They run as an evaluation does, so that wrappers learn nothing of them.
//
//   if (checks.due() && require_whole_loss_is_a_sum(stages, context, batch)) checks.settle();

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/model_run.hpp>

namespace weft::detail {

/// `count` sequences of a micro-batch from its `first` on, `times` times, as one micro-batch.
WEFT_COLD inline TokenBatch some_samples(const TokenBatch& batch, std::size_t micro, std::size_t first, std::size_t count,
                                         std::size_t times) {
  const std::size_t length = batch.micro_batch(micro).length, from_token = batch.tokens_before(micro) + first * length;
  TokenBatch few{.sequences = times * count, .length = length};
  few.first_sequence = batch.first_sequence + batch.sequences_before(micro);
  const auto repeat = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
    if (from.empty()) return;
    const auto begin = from.begin() + std::ptrdiff_t(from_token);
    for (std::size_t time = 0; time < times; ++time) to.insert(to.end(), begin, begin + std::ptrdiff_t(count * length));
  };
  repeat(batch.tokens, few.tokens);
  repeat(batch.targets, few.targets);
  repeat(batch.documents, few.documents);
  return few;
}
/// The same of samples.
template <auto... fields>
WEFT_COLD FieldBatch<fields...> some_samples(const FieldBatch<fields...>& batch, std::size_t micro, std::size_t first,
                                             std::size_t count, std::size_t times) {
  FieldBatch<fields...> few{.samples = times * count};
  const std::size_t before = micro * batch.samples_of_micro_batch();
  few.first_sample = batch.first_sample + before;
  few.for_each([&](auto field, auto& values) {
    const auto part = batch[field].part(before + first, count);
    const auto to = values.resize(times * count, batch[field].shape());
    for (std::size_t time = 0; time < times; ++time)
      std::copy(part.begin(), part.end(), to.begin() + std::ptrdiff_t(time * part.size()));
  });
  return few;
}

/// True if the loss of a model is checked here.
template <class Model, class Context>
inline constexpr bool has_whole_loss = ModelTypes<Model, Context>::Last::place == UnitPlace::only;

/// Throws UsageError unless the loss is a sum over samples. It uses one sequence or sample, or as many as tp has ranks, which may
/// cut them; it uses more, and those of later micro-batches, if these have no loss. Nothing is checked if the model refuses so
/// few samples. Returns true if later steps need no check. Collective over all ranks.
template <class Stages, class Context, class Batch>
WEFT_COLD bool require_whole_loss_is_a_sum(Stages& stages, const Context& context, const Batch& batch) {
  using Model = typename Stages::model_type;
  using Layer = typename ModelTypes<Model, Context>::Last::Layer;
  if constexpr (says_loss_is_a_sum<Layer>) {
    return true;
  } else {
    constexpr double tolerance = sizeof(typename Model::scalar) < 4 ? 5e-2 : 1e-3;  // products round by their number of rows
    const schedule::Table table = forward_table(stages.schedule(), 1, 1);
    std::size_t micro = 0;
    const auto loss = [&](std::size_t first, std::size_t count, std::size_t times) {
      const Batch few = some_samples(batch, micro, first, count, times);
      const auto& part = Stages::part_of(context, few);
      ModelRun<Model, Context> run(context, stages.chunks(), table, part, *stages.accumulator());
      run.executor.run({.forward_only = true});
      Stages::finish(context);
      return run.executor.losses().front();
    };
    try {
      const std::size_t micro_batches = smallest_on_any_rank(context, batch.micro_batches);
      for (; micro < micro_batches; ++micro) {
        const MicroBatch size = share_of(batch).micro_batch(micro);
        const auto refuse = [&](std::size_t count, double once, double twice) {
          refuse_sum("model", Stages::has_tokens, Stages::has_tokens ? count * size.length : count, once, twice);
        };
        if (check_some_samples(context, size.sequences, context.size(tp{}), false, tolerance, loss, refuse)) return true;
      }
      return false;
    } catch (const ShapeError&) {
      return true;
    }
  }
}

}  // namespace weft::detail
