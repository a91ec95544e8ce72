// SPDX-License-Identifier: Apache-2.0
#pragma once
// Surrogates for the tests of inference::Model.

#include <cstddef>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/data/fields.hpp>
#include <weft/inference/model.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/linear.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/pipeline/field_inputs.hpp>

namespace weft_test {

using namespace weft;

inline constexpr data::Field<"in", double> in;
inline constexpr data::Field<"out", double> out;

/// An MLP inputs-width-width-outputs; column and row parallel under tp.
template <class S>
struct Mlp : Module<Mlp<S>> {
  using scalar = S;
  using Batch = FieldBatch<in, out>;
  struct Config {
    std::size_t inputs = 3, width = 64, outputs = 1;
    double dropout = 0;
  };
  Linear<Column> first;
  Linear<Row> second;
  Linear<> last;
  Dropout dropout;
  Mlp(const auto& context, const Config& c)
      : first(context / "first", c.inputs, c.width),
        second(context / "second", c.width, c.width),
        last(context / "last", c.width, c.outputs),
        dropout(context / "dropout", c.dropout) {}
  auto forward(const auto& x) const { return last(dropout(silu(to<Invariant<tp>>(second(silu(first(x))))))); }
  auto loss(const auto& batch) const { return mse(forward(batch[in]), batch[out]); }
};

/// A stack on the same fields: a lift, blocks that pass a pair of values, and a last unit with statistics.
template <class S>
struct Chain {
  using scalar = S;
  using Batch = FieldBatch<in, out>;
  struct Config {
    std::size_t inputs = 3, width = 32, blocks = 3, outputs = 1;
    double dropout = 0;
  };
  struct First : Module<First> {
    Linear<> lift;
    First(const auto& context, const Config& c) : lift(context / "lift", c.inputs, c.width) {}
    auto forward(const auto& batch) const {
      const auto x = silu(lift(to<Invariant<tp>>(batch[in])));
      return std::tuple(x, x * x);
    }
  };
  struct Block : Module<Block> {
    Linear<Column> up;
    Linear<Row> down;
    Dropout dropout;
    Block(const auto& context, const Config& c)
        : up(context / "up", c.width, 2 * c.width),
          down(context / "down", 2 * c.width, c.width),
          dropout(context / "dropout", c.dropout) {}
    auto forward(const auto& x, const auto& h) const { return std::tuple(x, h + dropout(to<Invariant<tp>>(down(silu(up(h)))))); }
  };
  struct Last : Module<Last> {
    BatchNorm<> norm;
    Linear<> last;
    Last(const auto& context, const Config& c) : norm(context / "norm", c.width), last(context / "last", c.width, c.outputs) {}
    auto predict(const auto& x, const auto& h) const { return last(norm(x + h)); }
    auto forward(const auto& x, const auto& h, const auto& batch) const {
      return mse(predict(x, h), to<Invariant<tp>>(batch[out]));
    }
  };
  static auto stack(const auto& context, const Config& c) {
    return Stack([=] { return First(context / "first", c); },
                 repeated(c.blocks, [=](std::size_t i) { return Block(context / "blocks" / std::to_string(i), c); }),
                 [=] { return Last(context / "last", c); });
  }
};

/// Numbers in (-1, 1), a function of the seed.
inline std::vector<double> numbers(std::size_t count, std::uint64_t seed = 1) {
  std::vector<double> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = 2 * double(Philox::uniform(seed, i)) - 1;
  return all;
}

/// A model's predictions for samples of `inputs` values.
template <class Model>
std::vector<double> predicted(Model& model, const std::vector<double>& x, std::size_t inputs) {
  typename Model::Batch batch{.samples = x.size() / inputs};
  batch[in].view(std::span<const double>(x), {inputs});
  return model.predict(batch).values;
}

}  // namespace weft_test
