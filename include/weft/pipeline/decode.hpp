// SPDX-License-Identifier: Apache-2.0
#pragma once
// One forward of new tokens only: those before them are in the caller's cache. The new tokens of all sequences are the rows of
// one micro-batch without padding between them, so sequences may have any lengths.
//
//   decode<double>(stages, context, cache, tokens, size, [](const std::vector<double>& logits) { return logits; });

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/context/key_value_cache.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/tensor/softmax_statistics.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// New tokens of each sequence, none for those that rest.
using NewTokens = std::span<const std::vector<std::int32_t>>;

/// The rows of a forward of new tokens.
struct DecodeRows {
  TokenBatch batch;
  std::vector<std::int32_t> sequences, positions;  // [rows]; sequence -1: padding
  std::vector<std::size_t> last, row_of;           // the sequences with new tokens, and the row of the last one of each
  std::size_t longest = 0;
  bool first = true;  // every one of these sequences begins here
};

/// Those rows of x, one after the other.
template <class X>
X rows_of(const X& x, const std::vector<std::size_t>& rows) {
  bool all = rows.size() == x.rows();
  for (std::size_t i = 0; i < rows.size() && all; ++i) all = rows[i] == i;
  if (all) return x;
  using T = typename X::value_type;
  const std::size_t width = x.columns();
  X y(x.device(), with_extent(x.shape(), 0, rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    copy_rows(x.device(), 1, width, static_cast<const T*>(x.data()) + rows[i] * width, 0, y.data() + i * width, 0);
  return y;
}

/// 0, 1, ... count - 1.
std::vector<std::size_t> every(std::size_t count);

/// The log-probabilities of the gathered logits of z: in accumulate_t, as a training forward computes those of its targets
/// (nn/loss.hpp).
template <class Context, class Z>
std::vector<double> log_probabilities_of(const Context& context, const Z& z, const LogitRows& of,
                                         const std::vector<double>& logits) {
  using A = accumulate_t<typename Z::value_type>;
  const std::size_t rows = z.rows(), own = z.columns(), first = context.rank(tp{}) * own;
  const Communicator* ranks = nullptr;
  if constexpr (Context::has(tp{})) ranks = &context.comm(tp{});
  Tensor<std::int32_t, typename Z::execution_space> none(z.device(), {rows});
  copy_from_host(none, std::span<const std::int32_t>(std::vector<std::int32_t>(rows, -1)));
  const std::size_t valid = first >= of.vocabulary ? 0 : std::min(own, of.vocabulary - first);
  require_whole_terms(z.device(), of.vocabulary, context.size(tp{}));
  const auto statistics = softmax_statistics(ranks, z, valid, first, none.data());
  const auto maximum = copy_to_host(statistics.maximum), sums = copy_to_host(statistics.sums);
  std::vector<double> all(logits.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const double log_sum = Kokkos::log(double(sums[row]));
    for (std::size_t i = row * of.vocabulary; i < (row + 1) * of.vocabulary; ++i)
      all[i] = double(log_probability_of(A(A(logits[i]) - maximum[row]), log_sum));
  }
  return all;
}

/// As logits_of_unit, of the chosen rows only.
template <class Model, class Context>
void logits_of_chosen_rows(StackUnit<StepBatch::Exec>& unit, const UnitCall& call, AnyValue& value, const LogitRows& rows,
                           std::vector<double>& logits) {
  using Last = typename ModelTypes<Model, Context>::Last;
  const Context& context = *static_cast<const Context*>(call.context);
  const auto& back = layer_of<Last, Context>(unit);
  const auto& hidden = value.template as<typename Last::Input>();
  constexpr bool rows_are_cut = shard_dim<hidden_placement_t<Context, tp>> == 0;
  const auto z = rows_of(logits_of(back, context, rows_are_cut ? hidden : rows_of(hidden, *rows.chosen)),
                         rows_are_cut ? *rows.chosen : every(rows.chosen->size()));
  gather_logits(context, z, rows, logits);
  if (rows.log_probabilities == nullptr) return;
  using Place = placement_t<std::remove_cvref_t<decltype(z)>, tp>;
  if constexpr (!Context::has(tp{}) || shard_dim<Place> == 1)
    *rows.log_probabilities = log_probabilities_of(context, z, rows, logits);
  else throw_error<UsageError>({"log-probabilities over tp need logits whose vocabulary tp cuts (Shard<tp, 1>)"});
}

/// A decode whose batch holds new tokens only.
struct DecodeCall {
  KeyValueCache* cache;
  NewTokens tokens;
  const DecodeRows* rows;
  std::size_t vocabulary;
  bool log_probabilities;  // `use` gets them
};
/// Use of the logits [sequences, vocabulary] after each sequence's last token (0 for sequences without a new token), and of their
/// log-probabilities (empty unless the call wants them).
using UseLogits = std::function<void(const std::vector<double>& logits, const std::vector<double>& log_probabilities)>;
/// Appends the tokens to the cache. Ranks that hold the last unit call `use`, with the same logits on all of these ranks.
void forward_to_decode(Stages& stages, StepBatch& batch, const DecodeCall& of, LogitsOfUnit unit, const UseLogits& use);
/// The rows of a decode. Throws UsageError for a call that cannot decode, between the calls of an open step or over cp.
DecodeRows begin_decode(const Stages& stages, const KeyValueCache& cache, NewTokens tokens, bool over_tp);

/// Returns `use(logits)`, or `use(logits, log_probabilities)`, on every rank: an arithmetic vector whose length all ranks have
/// agreed on.
template <class T, class S, class Context, class Use>
std::vector<T> decode(S& stages, const Context& context, KeyValueCache& cache, NewTokens tokens, std::size_t size, Use&& use) {
  using Model = typename S::model_type;
  std::vector<T> made(size);
  if constexpr (!is_usable<Model, Context>()) {
    return made;  // the compiler has reported why
  } else if constexpr (S::has_tokens && HasLogits<Model, step_context_t<Context>, typename ModelTypes<Model, Context>::Last>) {
    const DecodeRows rows = begin_decode(stages, cache, tokens, cuts_tokens_over_tp<Model, Context>());
    require_length<Model>(stages.config(), rows.longest);
    ModelBatch<Model, Context> batch(context, stages.config(), rows.batch);
    using Numbers = const std::vector<double>&;
    constexpr bool both = std::is_invocable_v<Use&, Numbers, Numbers>;
    forward_to_decode(stages, batch, {&cache, tokens, &rows, Model::vocabulary(stages.config()), both},
                      &logits_of_chosen_rows<Model, step_context_t<Context>>,
                      [&](Numbers logits, [[maybe_unused]] Numbers log_probabilities) {
                        if constexpr (both) made = use(logits, log_probabilities);
                        else made = use(logits);
                      });
    if (stages.axes().has(pp{})) stages.axes().comm(pp{}).broadcast(made, stages.last_rank());
    return made;
  } else {
    return refuse_logits<Model>(), made;
  }
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/decode_impl.hpp>
#endif
