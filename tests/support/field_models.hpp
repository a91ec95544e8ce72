// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models on batches of fields, written forward-only, for the parity matrix: a multilayer perceptron with numbers in and out, and
// two towers with two inputs and a layer that both share.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/layer/field_inputs.hpp>
#include <weft/layer/module.hpp>
#include <weft/layer/operations/own_loss.hpp>
#include <weft/layer/operations/variables.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

inline constexpr Field<"input", float> input_field;
inline constexpr Field<"other", float> other_field;
inline constexpr Field<"wanted", float> wanted_field;
inline constexpr Field<"kind", std::int32_t> kind_field;

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

/// sum((x - y)²) / 2 of each row, as one loss a row. An operation of one's own.
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
  auto forward(const auto& x) const {
    return matmul(Activation()(matmul(to<Replicated<tp>>(x), up)), down);
  }
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
    return Stack([=] { return First(TwoLayers(context / "first", config.in, 2 * config.width, config.width)); },
                 repeated(config.layers,
                          [=](std::size_t i) {
                            return Middle(TwoLayers(context / "middle" / std::to_string(i), config.width, 2 * config.width, config.width));
                          }),
                 [=] { return Last(TwoLayers(context / "last", config.width, 2 * config.width, config.out)); });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.in});
    fill_field(batch, wanted_field, 2, {config.out});
    return batch;
  }
};

}  // namespace weft_test
