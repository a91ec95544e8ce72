// SPDX-License-Identifier: Apache-2.0
// The parity matrix of models on series of numbers under context parallelism: attention over positions that cp cuts, with a loss
// of each position and with one of each sample, whose wanted values are whole on every rank of cp.

#include <weft/operations/samples.hpp>
#include <weft/pipeline/sequence_field.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

inline constexpr data::Field<"series", float, data::SequenceDim<1>> series_field;
inline constexpr data::Field<"answers", float, data::SequenceDim<1>> answers_field;
inline constexpr data::Field<"counts", std::int32_t, data::SequenceDim<1>> counts_field;

struct SeriesConfig {
  std::size_t positions = 8, in = 6, width = 8, out = 3, layers = 3;
  double dropout = 0.2;
  AttentionMask mask = {};
};

/// `pooled`: a sample is the mean of its positions, and its loss is compared with a field of samples.
template <bool pooled>
struct Series {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = SeriesConfig;
  using Batch = FieldBatch<series_field, wanted_field, answers_field, counts_field>;

  struct First : Module<First> {
    Parameter<> table;
    LearnedPositions positions;
    Dropout dropout;
    First(const auto& context, const Config& config)
        : table(context, "table", {config.width, config.in}, normal(0.5)),
          positions(context / "positions", config.positions, config.width, 0.5),
          dropout(context / "dropout", config.dropout) {}
    auto forward(const auto& batch) const {
      const auto rows = merge_samples(to<Invariant<tp>>(batch[series_field]));  // [samples * positions / cp, in]
      return to_hidden(dropout(positions(matmul(rows, table))));
    }
  };
  struct Middle : Module<Middle> {
    LayerNorm norm;
    Linear<Column> in;
    Attention attention;
    Linear<Row> out;
    Dropout dropout;
    Middle(const auto& context, const Config& config)
        : norm(context / "norm", config.width),
          in(context / "in", config.width, 3 * config.width,
             {.standard_deviation = 0.5, .sharding = {{{config.width, 4}, {config.width, 4}, {config.width, 4}}}}),
          attention(context / "attention", {4, 4, config.width / 4}, config.mask),
          out(context / "out", config.width, config.width, {.standard_deviation = 0.5, .sharding = {{{config.width, 4}}}}),
          dropout(context / "dropout", config.dropout) {}
    auto forward(const auto& x) const { return x + dropout(to_layout_of(x, out(attention(in(norm(x)))))); }
  };
  struct Last : Module<Last> {
    Parameter<> table;
    std::size_t positions;
    Last(const auto& context, const Config& config)
        : table(context, "table", {config.out, config.width}, normal(0.5)), positions(config.positions) {}
    auto predict(const auto& hidden) const {
      const auto x = to<Invariant<tp>>(hidden);
      if constexpr (pooled)
        return matmul(to<Invariant<cp>>(sum<1>(split_samples(x))) / double(positions), table);  // [samples, out]
      else return matmul(x, table);                                                             // [samples * positions / cp, out]
    }
    auto forward(const auto& x, const auto& batch) const {
      const auto wanted = [&] {
        if constexpr (pooled) return to<Invariant<cp>>(to<Invariant<tp>>(batch[wanted_field]));
        else return merge_samples(to<Invariant<tp>>(batch[answers_field]));
      }();
      const auto losses = HalfSquares()(predict(x) - wanted);
      if constexpr (pooled) return sum_losses(losses);
      else return sum_losses(losses, merge_samples(to<Invariant<tp>>(batch[counts_field])));  // of the positions that count
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first", config); },
                 repeated(config.layers, [=](std::size_t i) { return Middle(context / "middle" / std::to_string(i), config); }),
                 [=] { return Last(context / "last", config); });
  }
  static std::size_t count(const Batch& batch) {
    if constexpr (pooled) return batch.samples;
    std::size_t counted = 0;
    for (const std::int32_t counts : batch[counts_field].values()) counted += counts >= 0;
    return counted;
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, series_field, 1, {config.positions, config.in});
    fill_field(batch, wanted_field, 2, {config.out});
    fill_field(batch, answers_field, 3, {config.positions, config.out});
    auto counts = batch[counts_field].resize(batch.samples, {config.positions});
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] = number_at(step, 4, batch.first_sample * config.positions + i) < -0.6 ? -1 : 1;
    return batch;
  }
};

const std::vector<MatrixEntry> sequence_layouts = {
    {2, {.cp = 2}, 1},
    {2, {.cp = 2}, 4},
    {4, {.cp = 4}, 2},
    {4, {.cp = 2}, 2},
    {4, {.cp = 2}, 2, "1f1b", 3},
    {8, {.cp = 4}, 1, "1f1b", 2},
    {4, {.tp = 2, .cp = 2}, 2},
    {8, {.tp = 2, .cp = 2}, 2, "1f1b", 1},
    {4, {.cp = 2, .pp = 2}, 4},
    {8, {.cp = 2, .pp = 2}, 4, "zb-h1", 1},
};
template <class Model>
using ContextLayout = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>>>;
template <class Model>
using UlyssesLayout = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>, Ulysses>>;
using AllAxes = Mesh<dp, cp, tp, pp>;

}  // namespace

TEST_CASE("series whose positions cp cuts, a loss of each position: every layout equals one rank") {
  CHECK(check_layouts_of<ContextLayout<Series<false>>, AllAxes>({}, sequence_layouts) == sequence_layouts.size());
}

TEST_CASE("series whose positions cp cuts, pooled: every layout equals one rank") {
  CHECK(check_layouts_of<ContextLayout<Series<true>>, AllAxes>({.mask = {.causal = false}}, sequence_layouts) ==
        sequence_layouts.size());
}

TEST_CASE("series under Ulysses") {
  CHECK(check_layouts_of<UlyssesLayout<Series<true>>, AllAxes>({}, {{2, {.cp = 2}, 2}, {4, {.cp = 2}, 2}}) == 2);
}
