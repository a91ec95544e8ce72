// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/decode.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <numeric>

#include <weft/core/inline.hpp>
#include <weft/pipeline/decode.hpp>

namespace weft::detail {

/// Throws UsageError and ShapeError for tokens that do not fit the cache. Rows are padded to a multiple of `multiple`.
WEFT_COLD WEFT_INLINE DecodeRows decode_rows(const KeyValueCache& cache, NewTokens tokens, std::size_t multiple) {
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

WEFT_INLINE std::vector<std::size_t> every(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t(0));
  return all;
}

// Rows of `width` values at their places among `count` rows; the others are 0.
WEFT_COLD WEFT_INLINE std::vector<double> spread(const std::vector<double>& rows, std::size_t width,
                                                 const std::vector<std::size_t>& places, std::size_t count) {
  std::vector<double> all(count * width);
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(rows.begin() + std::ptrdiff_t(i * width), width, all.begin() + std::ptrdiff_t(places[i] * width));
  return all;
}

WEFT_COLD WEFT_INLINE DecodeRows begin_decode(const Stages& stages, const KeyValueCache& cache, NewTokens tokens, bool over_tp) {
  stages.require_no_open_step("decode");
  const AxesInForce& axes = stages.axes();
  if (axes.size(cp{}) > 1)
    throw_error<UsageError>(
        {"decode over cp(", axes.size(cp{}), "): cp cuts sequences, and a new token is one row; use tp or pp"});
  return decode_rows(cache, tokens, over_tp ? axes.size(tp{}) : 1);
}

WEFT_INLINE void forward_to_decode(Stages& stages, StepBatch& batch, const DecodeCall& of, LogitsOfUnit unit,
                                   const UseLogits& use) {
  const DecodeRows& rows = *of.rows;
  const schedule::Table table = stages.forward_table(batch);
  using Numbers = Tensor<std::int32_t, StepBatch::Exec>;
  Numbers sequences(batch.device(), {rows.sequences.size()}), positions(batch.device(), {rows.positions.size()});
  copy_from_host(sequences, std::span<const std::int32_t>(rows.sequences));
  copy_from_host(positions, std::span<const std::int32_t>(rows.positions));
  CachedTokens cached{.cache = of.cache,
                      .sequences = sequences.data(),
                      .positions = positions.data(),
                      .longest = rows.longest,
                      .first = rows.first};
  batch.env().cached = &cached;
  std::vector<double> log_probabilities;
  const LogitRows wanted{
      of.vocabulary, {rows.row_of.size(), 1, 0}, &rows.row_of, of.log_probabilities ? &log_probabilities : nullptr};
  stages.forward_to_last_unit(batch, table, [&](auto& run, auto& layer) {
    std::vector<double> logits(rows.row_of.size() * of.vocabulary);
    unit(layer, run.call_of(0), run.last_hidden(0), wanted, logits);
    if (rows.last.size() != of.tokens.size())
      for (std::vector<double>* const all : {&logits, &log_probabilities})
        if (!all->empty()) *all = spread(*all, of.vocabulary, rows.last, of.tokens.size());
    use(logits, log_probabilities);
  });
  stages.finish(batch.engine().hooks);
  for (const std::size_t sequence : rows.last) cached.commit(sequence, of.tokens[sequence].size());
}

}  // namespace weft::detail
