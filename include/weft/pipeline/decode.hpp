// SPDX-License-Identifier: Apache-2.0
#pragma once
// One forward of new tokens only: those before them are in the caller's cache. The new tokens of all sequences are the rows of
// one micro-batch without padding between them, so sequences may have any lengths.
//
//   decode(stages, context, cache, tokens, [&](const std::vector<double>& logits) { ... });   // [sequences, vocabulary]

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/context/key_value_cache.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/model_run.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/tensor/to.hpp>
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

/// Throws UsageError and ShapeError for tokens that do not fit the cache. Rows are padded to a multiple of `multiple`.
WEFT_COLD inline DecodeRows decode_rows(const KeyValueCache& cache, NewTokens tokens, std::size_t multiple) {
  if (tokens.size() != cache.sequences())
    throw_error<UsageError>({"decode of ", tokens.size(), " sequences, but the cache is for ", cache.sequences(),
                             ": a sequence that rests has an empty vector"});
  DecodeRows rows;
  std::size_t document = 0;
  for (std::size_t sequence = 0; sequence < tokens.size(); ++sequence) {
    const std::size_t before = cache.lengths()[sequence], count = tokens[sequence].size();
    if (count == 0) continue;
    if (count > cache.capacity() - before)
      throw_error<ShapeError>({"decode: sequence ", sequence, " has ", before, " tokens in the cache and gets ", count,
                               " more, but the cache has room for ", cache.capacity(), " (capacity of KeyValueCache)"});
    rows.first = rows.first && before == 0;
    rows.longest = std::max(rows.longest, before + count);
    for (std::size_t i = 0; i < count; ++i) {
      rows.sequences.push_back(std::int32_t(sequence));
      rows.positions.push_back(std::int32_t(before + i));
    }
    rows.batch.tokens.insert(rows.batch.tokens.end(), tokens[sequence].begin(), tokens[sequence].end());
    rows.batch.documents.resize(rows.batch.tokens.size(), std::int32_t(document++));
    rows.last.push_back(sequence);
    rows.row_of.push_back(rows.batch.tokens.size() - 1);
  }
  if (document == 0) throw_error<UsageError>({"decode of no tokens: at least one sequence has a new one"});
  const std::size_t length = (rows.batch.tokens.size() + multiple - 1) / multiple * multiple;
  rows.batch.documents.resize(length, std::int32_t(document));
  if (!rows.first || rows.batch.documents.back() == 0)
    rows.batch.documents.clear();  // without padding, a single document equals no documents
  rows.batch.tokens.resize(length);
  rows.batch.targets.assign(length, -1);
  rows.sequences.resize(length, -1);
  rows.positions.resize(length, 0);
  rows.batch.sequences = 1;
  rows.batch.length = length;
  return rows;
}

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
inline std::vector<std::size_t> every(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t(0));
  return all;
}
/// Rows of `width` values at their places among `count` rows; the others are 0.
WEFT_COLD inline std::vector<double> spread(const std::vector<double>& rows, std::size_t width,
                                            const std::vector<std::size_t>& places, std::size_t count) {
  std::vector<double> all(count * width);
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(rows.begin() + std::ptrdiff_t(i * width), width, all.begin() + std::ptrdiff_t(places[i] * width));
  return all;
}

/// Appends the tokens to the cache. Ranks that hold the last unit call `use(logits)` with the logits [sequences, vocabulary]
/// after each sequence's last token (0 for sequences without a new token), the same on all of these ranks.
template <class Stages, class Context, class Use>
void forward_to_decode(Stages& stages, const Context& of, KeyValueCache& cache, NewTokens tokens, Use&& use) {
  using Model = typename Stages::model_type;
  stages.require_no_open_step("decode");
  if (of.size(cp{}) > 1)
    throw_error<UsageError>({"decode over cp(", of.size(cp{}), "): cp cuts sequences, and a new token is one row; use tp or pp"});
  constexpr bool has_experts = requires { Model::experts(stages.config()); };  // experts cut the tokens over tp
  constexpr bool rows_are_cut = shard_dim<hidden_placement_t<Context, tp>> == 0;
  const DecodeRows rows = decode_rows(cache, tokens, has_experts || rows_are_cut ? of.size(tp{}) : 1);
  stages.check_length(rows.longest);
  const schedule::Table table = stages.forward_table(of, rows.batch);
  using Numbers = Tensor<std::int32_t, typename Context::execution_space>;
  Numbers sequences(of.device(), {rows.sequences.size()}), positions(of.device(), {rows.positions.size()});
  copy_from_host(sequences, std::span<const std::int32_t>(rows.sequences));
  copy_from_host(positions, std::span<const std::int32_t>(rows.positions));
  CachedTokens cached{.cache = &cache,
                      .sequences = sequences.data(),
                      .positions = positions.data(),
                      .longest = rows.longest,
                      .first = rows.first};
  Context own = of;
  own.env.cached = &cached;
  ModelRun<Model, Context> run(own, stages.chunks(), table, rows.batch, *stages.accumulator());
  stages.rehearse_stages(of, rows.batch, run);  // without the cache, whose contents no shape depends on
  run.executor.run({.forward_only = true, .stop_before_last = true});
  const std::size_t vocabulary = Model::vocabulary(stages.config());
  for (const auto& chunk : stages.chunks()) {
    if (!chunk->last) continue;
    run.executor.with_unit(chunk->units.back(), [&] {
      using Last = typename ModelTypes<Model, Context>::Last;
      using Hidden = typename Last::Input;
      const auto& back = static_cast<const StackUnitOf<Last, Context>&>(*chunk->layers.back()).layer;
      const auto& hidden = run.executor.last_hidden(0).template as<Hidden>();
      auto mine = rows_of(logits_of(back, run.context, rows_are_cut ? hidden : rows_of(hidden, rows.row_of)),
                          rows_are_cut ? rows.row_of : every(rows.row_of.size()));
      std::vector<double> logits(rows.row_of.size() * vocabulary);
      const Zigzag in_order{rows.row_of.size(), 1, 0};
      if constexpr (Context::has(tp{}))
        gather_columns(
            mine.device(),
            to<Invariant<tp>>(run.context, decltype(mine)(mine.device(), {mine.rows(), mine.columns()}, mine.buffer())),
            vocabulary, in_order, logits);
      else gather_columns(mine.device(), mine, vocabulary, in_order, logits);
      if (rows.last.size() != tokens.size()) logits = spread(logits, vocabulary, rows.last, tokens.size());
      use(std::as_const(logits));
    });
  }
  stages.finish(own);
  for (const std::size_t sequence : rows.last) cached.commit(sequence, tokens[sequence].size());
}

/// Returns `use(logits)` on every rank: an arithmetic vector whose length all ranks have agreed on.
template <class T, class Stages, class Context, class Use>
std::vector<T> decode(Stages& stages, const Context& context, KeyValueCache& cache, NewTokens tokens, std::size_t size,
                      Use&& use) {
  using Model = typename Stages::model_type;
  std::vector<T> made(size);
  if constexpr (!is_usable<Model, Context>()) {
    return made;  // the compiler has reported why
  } else if constexpr (Stages::has_tokens && HasLogits<Model, Context, typename ModelTypes<Model, Context>::Last>) {
    forward_to_decode(stages, context, cache, tokens, [&](const std::vector<double>& logits) { made = use(logits); });
    if constexpr (Context::has(pp{})) {
      const int ranks = int(context.size(pp{}));
      context.comm(pp{}).broadcast(made, stages.schedule().stage_rank(ranks * stages.schedule().chunks() - 1, ranks));
    }
    return made;
  } else {
    return refuse_logits<Model>(), made;
  }
}

}  // namespace weft::detail
