// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models on batches of fields, written forward-only, for the parity matrix: a multilayer perceptron with numbers in and out, and
// two towers with two inputs and a layer that both share.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/autograd/module.hpp>
#include <weft/operations/own_loss.hpp>
#include <weft/operations/variables.hpp>
#include <weft/pipeline/field_inputs.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

inline constexpr data::Field<"input", float> input_field;
inline constexpr data::Field<"other", float> other_field;
inline constexpr data::Field<"wanted", float> wanted_field;
inline constexpr data::Field<"kind", std::int32_t> kind_field;

inline constexpr std::size_t global_samples = 8;

/// A number in [-1, 1] for each place of a field, the same in every layout.
inline double number_at(std::uint64_t step, std::uint64_t field, std::size_t place) {
  return double(std::int64_t(key_of(step, place, field) % 2001)) / 1000.0 - 1;
}
template <class B>
B share_of_samples(std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  B batch;
  batch.samples = global_samples / ranks;
  batch.first_sample = batch.samples * rank;
  batch.micro_batches = micro_batches;
  batch.step = step;
  return batch;
}
template <class B, class F>
void fill_field(B& batch, F field, std::uint64_t number, const Shape& shape) {
  auto values = batch[field].resize(batch.samples, shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = typename F::scalar(number_at(batch.step, number, batch.first_sample * shape.size() + i));
}

/// sum((x - y)²) / 2 per row, as one loss per row. A user-defined operation.
struct HalfSquares : Primitive<HalfSquares> {
  auto forward(const auto& x) const { return scale(sum_columns(square(x)), 0.5); }
  auto gradient(const auto& g, const auto& x) const { return times_column(x, g); }
};

struct Activation : Primitive<Activation> {
  auto forward(const auto& x) const { return tanh(x); }
  auto gradient(const auto& g, const auto& x) const {
    const auto y = tanh(x);
    return subtract(g, times(g, square(y)));
  }
};

/// x [samples, in] -> [samples, out], hidden units cut over tp. Invariant<tp> out, or rows cut under sequence parallelism.
struct TwoLayers : Module<TwoLayers> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  TwoLayers(const auto& context, std::size_t in, std::size_t inner, std::size_t out)
      : up(context, "up", {inner, in}, normal(0.5)), down(context, "down", {out, inner}, normal(0.5)) {}
  auto forward(const auto& x) const { return matmul(Activation()(matmul(to<Replicated<tp>>(x), up)), down); }
};

// A value brought to the placement that hidden values have between units.
template <class V>
auto to_hidden(const V& x) {
  using Context = typename V::context_type;
  if constexpr (Context::has(tp{})) return to<detail::hidden_placement_t<Context, tp>>(x);
  else return x;
}

struct MlpConfig {
  std::size_t in = 6, width = 8, out = 3, layers = 4;
};

/// Numbers in, numbers out, the mean squared distance.
struct Mlp {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = MlpConfig;
  using Batch = FieldBatch<input_field, wanted_field>;

  struct First : Module<First> {
    TwoLayers layers;
    explicit First(TwoLayers l) : layers(std::move(l)) {}
    auto forward(const auto& batch) const { return to_hidden(layers(batch[input_field])); }
  };
  struct Middle : Module<Middle> {
    TwoLayers layers;
    explicit Middle(TwoLayers l) : layers(std::move(l)) {}
    auto forward(const auto& x) const { return x + to_layout_of(x, layers(x)); }
  };
  struct Last : Module<Last> {
    TwoLayers layers;
    explicit Last(TwoLayers l) : layers(std::move(l)) {}
    auto outputs(const auto& x) const { return to<Invariant<tp>>(layers(x)); }
    auto predict(const auto& x) const { return outputs(x); }
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(outputs(x) - to<Invariant<tp>>(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack(
        [=] { return First(TwoLayers(context / "first", config.in, 2 * config.width, config.width)); },
        repeated(config.layers,
                 [=](std::size_t i) {
                   return Middle(TwoLayers(context / "middle" / std::to_string(i), config.width, 2 * config.width, config.width));
                 }),
        [=] { return Last(TwoLayers(context / "last", config.width, 2 * config.width, config.out)); });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.in});
    fill_field(batch, wanted_field, 2, {config.out});
    return batch;
  }
};

struct TowersConfig {
  std::size_t in = 6, width = 8, layers = 3;
};

/// Two inputs, each through the same first layer and then a separate tower; the hidden value is a tuple of both. The loss is the
/// squared distance of their difference from the target. A whole number of the batch chooses a row of a table.
struct Towers {
  using scalar = double;
  using Config = TowersConfig;
  using Batch = FieldBatch<input_field, other_field, kind_field, wanted_field>;

  struct First : Module<First> {
    TwoLayers shared;  // of both towers
    explicit First(TwoLayers l) : shared(std::move(l)) {}
    auto forward(const auto& batch) const {
      return std::tuple(to_hidden(shared(batch[input_field])), to_hidden(shared(batch[other_field])));
    }
  };
  struct Middle : Module<Middle> {
    TwoLayers left, right;
    Middle(TwoLayers l, TwoLayers r) : left(std::move(l)), right(std::move(r)) {}
    auto forward(const auto& x, const auto& y) const {
      return std::tuple(x + to_layout_of(x, left(x)), y + to_layout_of(y, right(y)));
    }
  };
  /// Both as one tensor.
  struct Join : Module<Join> {
    auto forward(const auto& x, const auto& y) const { return x - y; }
  };
  struct Last : Module<Last> {
    TwoLayers shared;  // shared with the first tower
    Parameter<> gain;
    Last(const auto& context, TwoLayers l, std::size_t width) : shared(std::move(l)), gain(context, "gain", {width}, normal(1)) {}
    auto forward(const auto& x, const auto& batch) const {
      const auto whole = to<Invariant<tp>>(x);
      return sum_losses(HalfSquares()(whole * gain - to<Invariant<tp>>(batch[wanted_field]))) +
             sum_losses(HalfSquares()(to<Invariant<tp>>(shared(to<Invariant<tp>>(batch[input_field]))) - whole));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    const auto shared = [=] {
      return shared_layer(context / "shared",
                          [&](const auto& here) { return TwoLayers(here, config.in, 2 * config.width, config.width); });
    };
    return Stack([=] { return First(shared()); },
                 repeated(config.layers,
                          [=](std::size_t i) {
                            const auto here = context / "towers" / std::to_string(i);
                            return Middle(TwoLayers(here / "left", config.width, config.width, config.width),
                                          TwoLayers(here / "right", config.width, config.width, config.width));
                          }),
                 [=] { return Join(); },
                 repeated(2,
                          [=](std::size_t i) {
                            return Mlp::Middle(
                                TwoLayers(context / "joined" / std::to_string(i), config.width, config.width, config.width));
                          }),
                 [=] { return Last(context / "last", shared(), config.width); });
  }
  /// Counts elements instead of samples: the loss is divided by twice as many terms.
  static std::size_t count(const Batch& batch) { return 2 * batch.samples; }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.in});
    fill_field(batch, other_field, 3, {config.in});
    fill_field(batch, kind_field, 4, {});
    fill_field(batch, wanted_field, 2, {config.width});
    return batch;
  }
};

/// The perceptron as one Module with a loss, for every axis but pp.
struct MlpModule : Module<MlpModule> {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = MlpConfig;
  using Batch = Mlp::Batch;

  TwoLayers first, middle, last;
  MlpModule(const auto& context, const Config& config)
      : first(context / "first", config.in, 2 * config.width, config.width),
        middle(context / "middle", config.width, 2 * config.width, config.width),
        last(context / "last", config.width, 2 * config.width, config.out) {}
  auto forward(const auto& input) const {
    const auto x = to_hidden(first(input));
    return to<Invariant<tp>>(last(x + to_layout_of(x, middle(x))));
  }
  auto loss(const auto& batch) const {
    return sum_losses(HalfSquares()(forward(batch[input_field]) - to<Invariant<tp>>(batch[wanted_field])));
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    return Mlp::make_batch(config, step, rank, ranks, micro_batches);
  }
};

struct PatchesConfig {
  std::size_t patches = 4, in = 6, width = 8, out = 3, layers = 4;
  double dropout = 0.2;
};

/// Patches of images that attend to each other, pooled at the end: inside, a sample has several rows. Dropout and positions use
/// these rows. (A block's hidden value is [samples * patches, width].)
struct Patches {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = PatchesConfig;
  using Batch = FieldBatch<input_field, wanted_field>;

  struct First : Module<First> {
    Parameter<> table;
    LearnedPositions positions;
    Dropout dropout;
    std::size_t patches;
    First(const auto& context, const Config& config)
        : table(context, "table", {config.width, config.in}, normal(0.5)),
          positions(context / "positions", config.patches, config.width, 0.5),
          dropout(context / "dropout", config.dropout),
          patches(config.patches) {}
    auto forward(const auto& batch) const {
      const auto image = to<Invariant<tp>>(batch[input_field]);  // [samples, patches, in]
      const auto x = reshape(image, {image.shape()[0] * patches, image.shape()[2]});
      return dropout(positions(matmul(x, table)));
    }
  };
  struct Middle : Module<Middle> {
    LayerNorm norm;
    Linear<Column> in;
    Attention attention;
    Linear<Row> out;
    Dropout dropout;
    Middle(const auto& context, std::size_t width, double probability)
        : norm(context / "norm", width),
          in(context / "in", width, 3 * width, {.standard_deviation = 0.5, .sharding = {{{width, 4}, {width, 4}, {width, 4}}}}),
          attention(context / "attention", {4, 4, width / 4}, {.causal = false}),
          out(context / "out", width, width, {.standard_deviation = 0.5, .sharding = {{{width, 4}}}}),
          dropout(context / "dropout", probability) {}
    auto forward(const auto& x) const { return x + dropout(to_layout_of(x, out(attention(in(norm(x)))))); }
  };
  struct Last : Module<Last> {
    Parameter<> table;
    std::size_t patches;
    Last(const auto& context, const Config& config)
        : table(context, "table", {config.out, config.width}, normal(0.5)), patches(config.patches) {}
    auto predict(const auto& x) const {
      return matmul(mean<1>(reshape(x, {x.shape()[0] / patches, patches, x.shape()[1]})), table);  // [samples, out]
    }
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(predict(x) - to<Invariant<tp>>(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack(
        [=] { return First(context / "first", config); },
        repeated(config.layers,
                 [=](std::size_t i) { return Middle(context / "middle" / std::to_string(i), config.width, config.dropout); }),
        [=] { return Last(context / "last", config); });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.patches, config.in});
    fill_field(batch, wanted_field, 2, {config.out});
    return batch;
  }
};

}  // namespace weft_test
