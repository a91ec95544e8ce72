// SPDX-License-Identifier: Apache-2.0
#pragma once
// The logits of a language model after some tokens, the same on every rank, in any layout.
//
//   const std::vector<double> logits = all_logits(stages, context, tokens);   // [tokens, vocabulary]

#include <cstdint>
#include <span>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/typed_unit.hpp>
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

/// The rows of the logits that a call wants of a micro-batch's hidden value.
struct LogitRows {
  std::size_t vocabulary;
  Zigzag order;                                      ///< the place of each row among all rows
  const std::vector<std::size_t>* chosen = nullptr;  ///< the rows to take (pipeline/decode.hpp); null: all
  std::vector<double>* log_probabilities = nullptr;  ///< of chosen rows: filled like the logits; null: not wanted
};
/// Writes the logits of the model's last unit, given its hidden input, at their places in `logits`.
using LogitsOfUnit = void (*)(StackUnit<StepBatch::Exec>& unit, const UnitCall& call, AnyValue& hidden, const LogitRows& rows,
                              std::vector<double>& logits);

/// Gathers the logits over tp, without the padding of the vocabulary, and over cp.
template <class Context, class Z>
void gather_logits(const Context& context, Z mine, const LogitRows& rows, std::vector<double>& logits) {
  if constexpr (Context::has(tp{})) {
    const Z placed(mine.device(), {mine.rows(), mine.columns()}, mine.buffer());
    gather_columns(mine.device(), to<Invariant<tp>>(context, placed), rows.vocabulary, rows.order, logits);
  } else {
    gather_columns(mine.device(), mine, rows.vocabulary, rows.order, logits);
  }
  if constexpr (Context::has(cp{})) context.comm(cp{}).all_reduce(logits);  // zero in the rows of other ranks
}
template <class Model, class Context>
void logits_of_unit(StackUnit<StepBatch::Exec>& unit, const UnitCall& call, AnyValue& hidden, const LogitRows& rows,
                    std::vector<double>& logits) {
  using Last = typename ModelTypes<Model, Context>::Last;
  const Context& context = *static_cast<const Context*>(call.context);
  gather_logits(context, logits_of(layer_of<Last, Context>(unit), context, hidden.template as<typename Last::Input>()), rows,
                logits);
}

/// Whether a model's layers cut the tokens over tp: sequence parallelism and experts do.
template <class Model, class Context>
constexpr bool cuts_tokens_over_tp() {
  return shard_dim<hidden_placement_t<Context, tp>> == 0 || requires(const typename Model::Config& config) {
    Model::experts(config);
  };
}

/// One sequence as a batch. Padding after its last token gives equal parts to ranks that cut the tokens. `over_tp`: see
/// cuts_tokens_over_tp. Throws UsageError without a token.
TokenBatch batch_of_sequence(const AxesInForce& axes, std::span<const std::int32_t> tokens, bool over_tp);
/// The logits [tokens, vocabulary] of such a batch on every rank.
std::vector<double> logits_of_sequence(Stages& stages, StepBatch& batch, LogitsOfUnit unit, std::size_t tokens,
                                       std::size_t vocabulary);

/// The logits [tokens, vocabulary] of one sequence. All ranks of one share pass the same tokens.
template <class S, class Context>
std::vector<double> all_logits(S& stages, const Context& context, std::span<const std::int32_t> tokens) {
  using Model = typename S::model_type;
  if constexpr (!is_usable<Model, Context>()) {
    return {};  // the compiler has reported why
  } else if constexpr (S::has_tokens && HasLogits<Model, step_context_t<Context>, typename ModelTypes<Model, Context>::Last>) {
    const TokenBatch whole = batch_of_sequence(stages.axes(), tokens, cuts_tokens_over_tp<Model, Context>());
    require_length<Model>(stages.config(), tokens.size());
    ModelBatch<Model, Context> batch(context, stages.config(), whole);
    return logits_of_sequence(stages, batch, &logits_of_unit<Model, step_context_t<Context>>, tokens.size(),
                              Model::vocabulary(stages.config()));
  } else {
    return refuse_logits<Model>(), std::vector<double>();
  }
}
/// The logits [vocabulary] after the last of these tokens.
template <class S, class Context>
std::vector<float> next_logits(S& stages, const Context& context, std::span<const std::int32_t> tokens) {
  const auto logits = all_logits(stages, context, tokens);
  const std::size_t vocabulary = tokens.empty() ? 0 : logits.size() / tokens.size();
  return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>(vocabulary), logits.end());
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/logits_impl.hpp>
#endif
