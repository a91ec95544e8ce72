// SPDX-License-Identifier: Apache-2.0
#pragma once
// The logits of a language model after some tokens, the same on every rank, in any layout.
//
//   const std::vector<double> logits = all_logits(stages, context, tokens);   // [tokens, vocabulary]

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

template <class Exec, class Z>
void gather_columns(Device<Exec>&, const Z& z, std::size_t vocabulary, const Zigzag& rows, std::vector<double>& logits) {
  const auto host = copy_to_host(z);
  for (std::size_t row = 0; row < z.rows(); ++row)
    for (std::size_t i = 0; i < vocabulary; ++i)
      logits[rows.row(row) * vocabulary + i] = double(accumulate_t<typename Z::value_type>(host[row * z.columns() + i]));
}

/// A back's logits; a Module's are recorded in no tape.
template <class L, class Context, class X>
auto logits_of(const L& back, const Context& context, const X& x) {
  if constexpr (LogitsOfVariables<L, Context, X>) {
    const auto tape = make_tape(context, false);
    return back.logits(Variable<Context, X>(x, *tape)).value();
  } else {
    return back.logits(context, x);
  }
}

template <class Stages, class Context>
std::vector<double> forward_for_logits(Stages& stages, const Context& context, std::span<const std::int32_t> tokens) {
  using Model = typename Stages::model_type;
  if (tokens.empty()) throw_error<UsageError>({"logits of no tokens: at least one is needed"});
  stages.check_length(tokens.size());
  // Padding after the last token gives equal parts to ranks that cut the tokens. The padding is a separate document, because
  // attention may see later tokens.
  std::size_t multiple = context.size(cp{}) > 1 ? 2 * context.size(cp{}) : 1;
  constexpr bool has_experts = requires { Model::experts(stages.config()); };  // experts cut the tokens, too
  if constexpr (has_experts || shard_dim<hidden_placement_t<Context, tp>> == 0)
    multiple = context.size(cp{}) * std::lcm(multiple / context.size(cp{}), context.size(tp{}));
  TokenBatch whole{.sequences = 1, .length = (tokens.size() + multiple - 1) / multiple * multiple};
  whole.tokens.assign(tokens.begin(), tokens.end());
  whole.tokens.resize(whole.length);
  whole.targets.assign(whole.length, -1);
  if (whole.length != tokens.size()) {
    whole.documents.assign(whole.length, 1);
    std::fill_n(whole.documents.begin(), tokens.size(), 0);
  }
  const schedule::Table table = stages.forward_table(context, whole);
  const auto& batch = stages.part_of(context, whole);
  ModelRun<Model, Context> run(context, stages.chunks(), table, batch, *stages.accumulator());
  stages.rehearse_stages(context, batch, run);
  run.executor.run({.forward_only = true, .stop_before_last = true});
  const std::size_t vocabulary = Model::vocabulary(stages.config());
  std::vector<double> logits(whole.length * vocabulary);
  const Zigzag rows{whole.length, context.size(cp{}), context.rank(cp{})};
  for (const auto& chunk : stages.chunks()) {
    if (!chunk->last) continue;
    run.executor.with_unit(chunk->units.back(), [&] {
      using Last = typename ModelTypes<Model, Context>::Last;
      const auto& back = static_cast<const StackUnitOf<Last, Context>&>(*chunk->layers.back()).layer;
      auto mine = logits_of(back, run.context, run.executor.last_hidden(0).template as<typename Last::Input>());
      // Padding of the vocabulary is gathered, too; its columns are left out here.
      if constexpr (Context::has(tp{}))
        gather_columns(
            mine.device(),
            to<Invariant<tp>>(run.context, decltype(mine)(mine.device(), {mine.rows(), mine.columns()}, mine.buffer())),
            vocabulary, rows, logits);
      else gather_columns(mine.device(), mine, vocabulary, rows, logits);
      if constexpr (Context::has(cp{})) context.comm(cp{}).all_reduce(logits);  // zero in the rows of other ranks
    });
  }
  stages.finish(context);
  if constexpr (Context::has(pp{})) {
    const int ranks = static_cast<int>(context.size(pp{}));
    context.comm(pp{}).broadcast(logits, stages.schedule().stage_rank(ranks * stages.schedule().chunks() - 1, ranks));
  }
  logits.resize(tokens.size() * vocabulary);
  return logits;
}

/// The logits [tokens, vocabulary] of one sequence. All ranks of one share pass the same tokens.
template <class Stages, class Context>
std::vector<double> all_logits(Stages& stages, const Context& context, std::span<const std::int32_t> tokens) {
  using Model = typename Stages::model_type;
  if constexpr (!is_usable<Model, Context>()) return {};  // the compiler has reported why
  else if constexpr (Stages::has_tokens && HasLogits<Model, Context, typename ModelTypes<Model, Context>::Last>)
    return forward_for_logits(stages, context, tokens);
  else return refuse_logits<Model>(), std::vector<double>();
}
/// The logits [vocabulary] after the last of these tokens.
template <class Stages, class Context>
std::vector<float> next_logits(Stages& stages, const Context& context, std::span<const std::int32_t> tokens) {
  const auto logits = all_logits(stages, context, tokens);
  return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>(logits.size() / std::max<std::size_t>(1, tokens.size())),
                            logits.end());
}

}  // namespace weft::detail
