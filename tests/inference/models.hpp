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
