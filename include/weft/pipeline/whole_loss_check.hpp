// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the loss of a model of one unit, such as a Module, is a sum over samples: two forwards of a few samples, once and twice
// in one batch, before the model's first training step. They run as an evaluation does, so that wrappers learn nothing of them.
//
//   require_whole_loss_is_a_sum(stages, context, batch);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/layer/batch.hpp>
#include <weft/layer/fields.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/model_run.hpp>

namespace weft::detail {

/// The first `count` sequences of a batch's first micro-batch, `times` times, as one micro-batch.
WEFT_COLD inline TokenBatch first_samples(const TokenBatch& batch, std::size_t count, std::size_t times) {
  const std::size_t length = batch.micro_batch(0).length;
  TokenBatch few{.sequences = times * count, .length = length};
  few.first_sequence = batch.first_sequence;
  few.step = batch.step;
  const auto repeat = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
    if (from.empty()) return;
    for (std::size_t time = 0; time < times; ++time)
      to.insert(to.end(), from.begin(), from.begin() + std::ptrdiff_t(count * length));
  };
  repeat(batch.tokens, few.tokens);
  repeat(batch.targets, few.targets);
  repeat(batch.documents, few.documents);
  return few;
}
/// The same of samples.
template <auto... fields>
WEFT_COLD FieldBatch<fields...> first_samples(const FieldBatch<fields...>& batch, std::size_t count, std::size_t times) {
  FieldBatch<fields...> few{.samples = times * count};
  few.first_sample = batch.first_sample;
  few.step = batch.step;
  few.for_each([&](auto field, auto& values) {
    const auto part = batch[field].part(0, count);
    const auto to = values.resize(times * count, batch[field].shape());
    for (std::size_t time = 0; time < times; ++time)
      std::copy(part.begin(), part.end(), to.begin() + std::ptrdiff_t(time * part.size()));
  });
  return few;
}

/// Whether the loss of a model is checked here.
template <class Model, class Context>
inline constexpr bool has_whole_loss = ModelTypes<Model, Context>::Last::place == UnitPlace::only;

/// Throws UsageError unless the loss is a sum over samples: of one sequence or sample, or as many as tp has ranks, which may cut
/// them. Collective over all ranks. Nothing is checked if the model refuses so few samples.
template <class Stages, class Context, class Batch>
WEFT_COLD void require_whole_loss_is_a_sum(Stages& stages, const Context& context, const Batch& batch) {
  using Model = typename Stages::model_type;
  using Layer = typename ModelTypes<Model, Context>::Last::Layer;
  if constexpr (!says_loss_is_a_sum<Layer>) {
    constexpr double tolerance = sizeof(typename Model::scalar) < 4 ? 5e-2 : 1e-3;  // products round by their number of rows
    const std::size_t count = std::min(share_of(batch).micro_batch(0).sequences, context.size(tp{}));
    if (count == 0) return;
    const schedule::Table table = forward_table(stages.schedule(), 1, 1);
    double losses[2];
    try {
      for (const std::size_t times : {1, 2}) {
        const Batch few = first_samples(batch, count, times);
        const auto& part = Stages::part_of(context, few);
        ModelRun<Model, Context> run(context, stages.chunks(), table, part, *stages.accumulator());
        run.executor.run({.forward_only = true});
        Stages::finish(context);
        losses[times - 1] = run.executor.losses().front();
      }
    } catch (const ShapeError&) {
      return;
    }
    const BatchShare share = share_of(batch);
    require_twice("model", Stages::has_tokens, Stages::has_tokens ? count * share.micro_batch(0).length : count, losses[0],
                  losses[1], tolerance);
  }
}

}  // namespace weft::detail
