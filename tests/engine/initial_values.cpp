// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/initialise_parameter.hpp
// Initial values: their moments and bounds compared with PyTorch's formulas, orthogonal matrices, the same bits in every layout,
// the defaults of layers, and a surrogate that trains from them.
#include <weft/engine/initial_values.hpp>
#include <weft/engine/initialise_parameter.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/weft.hpp>

#include "support/message.hpp"

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;

std::vector<double> values_of(const Shape& shape, const InitialValues& initial) {
  DefaultDevice device;
  const Root root(device, {});
  const Parameter<> parameter(root, "weight", shape, initial);
  const auto* data = static_cast<const double*>(parameter.state().value().get());
  return {data, data + shape.size()};
}

struct Moments {
  double mean = 0, deviation = 0, least = 1e300, most = -1e300;
  explicit Moments(const std::vector<double>& values) {
    for (const double value : values) {
      mean += value / double(values.size());
      least = std::min(least, value);
      most = std::max(most, value);
    }
    for (const double value : values) deviation += (value - mean) * (value - mean) / double(values.size());
    deviation = std::sqrt(deviation);
  }
};

// Within five standard errors, and so for every seed.
void check_normal(const Shape& shape, const InitialValues& initial, double deviation, double mean = 0) {
  const Moments moments(values_of(shape, initial));
  const double error = deviation / std::sqrt(double(shape.size()));
  CHECK(std::abs(moments.mean - mean) < 5 * error);
  CHECK(std::abs(moments.deviation - deviation) < 5 * error);
  CHECK(moments.most > mean + 3 * deviation);
}
void check_uniform(const Shape& shape, const InitialValues& initial, double bound) {
  const Moments moments(values_of(shape, initial));
  CHECK(moments.most <= bound);
  CHECK(moments.least >= -bound);
  CHECK(moments.most > 0.999 * bound);
  CHECK(moments.least < -0.999 * bound);
  CHECK(std::abs(moments.deviation - bound / std::sqrt(3.0)) < 0.01 * bound);
}

void check_orthogonal(const Shape& shape, double gain) {
  const std::vector<double> values = values_of(shape, orthogonal(gain));
  const std::size_t rows = shape[0], columns = shape.size() / rows, few = std::min(rows, columns), many = std::max(rows, columns);
  const auto at = [&](std::size_t one, std::size_t i) {
    return rows < columns ? values[one * columns + i] : values[i * columns + one];
  };
  for (std::size_t a = 0; a < few; ++a)
    for (std::size_t b = 0; b < few; ++b) {
      double product = 0;
      for (std::size_t i = 0; i < many; ++i) product += at(a, i) * at(b, i);
      CHECK(std::abs(product - (a == b ? gain * gain : 0)) < 1e-12);
    }
}

inline constexpr data::Field<"x", float> fx;
inline constexpr data::Field<"y", float> fy;

struct Distributions {
  std::string name;
  InitialValues values;
};
const std::vector<Distributions>& distributions() {
  static const std::vector<Distributions> all = {{"normal", normal(0.3)},
                                                 {"uniform", uniform(-1, 2)},
                                                 {"uniform_in", uniform(Fan::in)},
                                                 {"uniform_out", uniform(Fan::out)},
                                                 {"kaiming_uniform", kaiming_uniform({.nonlinearity = Nonlinearity::relu})},
                                                 {"kaiming_normal", kaiming_normal({.fan = Fan::out})},
                                                 {"xavier_uniform", xavier_uniform(2)},
                                                 {"xavier_normal", xavier_normal()},
                                                 {"truncated_normal", truncated_normal(0.7, 0.1, -0.5, 1)},
                                                 {"truncated_normal_in", truncated_normal(Fan::in)},
                                                 {"orthogonal", orthogonal(1.5)}};
  return all;
}

/// Parameters of every distribution, whole and cut along each dim.
struct Everything : Module<Everything> {
  using scalar = float;
  using Batch = FieldBatch<fx, fy>;
  struct Config {};
  std::vector<Parameter<>> whole;
  std::vector<Parameter<Shard<tp, 0>>> rows;
  std::vector<Parameter<Shard<tp, 1>>> columns;
  Linear<Column> up;
  Linear<Row, StoredAs::in_out> down;
  Everything(const auto& context, const Config&) : up(context / "up", 6, 16), down(context / "down", 16, 6) {
    for (const auto& [name, values] : distributions()) {
      whole.emplace_back(context / "whole", name, Shape{12, 8}, values);
      rows.emplace_back(context / "rows", name, Shape{12, 8}, values, ParameterSharding{.segments = {{4, 2}, {8, 2}}});
      columns.emplace_back(context / "columns", name, Shape{12, 8}, values);
    }
  }
  auto forward(const auto& x) const { return x; }
};

struct Surrogate : Module<Surrogate> {
  using scalar = float;
  using Batch = FieldBatch<fx, fy>;
  struct Config {
    LinearOptions linear = {};
  };
  Linear<> in, hidden, out;
  Surrogate(const auto& context, const Config& config)
      : in(context / "in", 3, 64, config.linear),
        hidden(context / "hidden", 64, 64, config.linear),
        out(context / "out", 64, 1, config.linear) {}
  auto forward(const auto& x) const { return out(tanh(hidden(tanh(in(x))))); }
  auto loss(const auto& batch) const { return mse(forward(batch[fx]), batch[fy]); }
};

Surrogate::Batch surrogate_samples(std::uint64_t step, std::size_t samples) {
  Surrogate::Batch batch{.samples = samples, .step = step};
  const auto x = batch[fx].resize(samples, {3}), y = batch[fy].resize(samples, {1});
  for (std::size_t i = 0; i < samples; ++i) {
    for (std::size_t k = 0; k < 3; ++k) x[3 * i + k] = 2 * Philox::uniform(key_of(step, 77), 3 * i + k) - 1;
    y[i] = std::sin(3 * x[3 * i]) * x[3 * i + 1] + 0.5f * x[3 * i + 2] * x[3 * i + 2];
  }
  return batch;
}
double trained_surrogate(const LinearOptions& linear) {
  DefaultDevice device;
  SingleDevice<Surrogate> model(device, {linear});
  optim::AdamW optimizer(model, {.learning_rate = 3e-3, .weight_decay = 0});
  for (std::uint64_t step = 0; step < 400; ++step) {
    model.train_step(surrogate_samples(step, 64));
    optimizer.step();
  }
  return model.evaluate(surrogate_samples(100000, 512));
}

}  // namespace

TEST_CASE("moments and bounds are those of PyTorch's formulas") {
  const Shape matrix{300, 200};
  check_normal(matrix, normal(0.3, 2), 0.3, 2);
  check_uniform(matrix, uniform(0.7), 0.7);
  check_uniform(matrix, uniform(Fan::in), 1 / std::sqrt(200.0));
  check_uniform(matrix, uniform(Fan::out), 1 / std::sqrt(300.0));
  check_uniform(matrix, kaiming_uniform({.slope = std::sqrt(5.0)}), 1 / std::sqrt(200.0));
  check_uniform(matrix, kaiming_uniform(), std::sqrt(6 / 200.0));
  check_uniform(matrix, kaiming_uniform({.fan = Fan::out, .nonlinearity = Nonlinearity::tanh}), 5.0 / 3 * std::sqrt(3 / 300.0));
  check_normal(matrix, kaiming_normal({.nonlinearity = Nonlinearity::relu}), std::sqrt(2 / 200.0));
  check_normal(matrix, kaiming_normal({.fan = Fan::out, .nonlinearity = Nonlinearity::linear}), 1 / std::sqrt(300.0));
  check_uniform(matrix, xavier_uniform(2), 2 * std::sqrt(6 / 500.0));
  check_normal(matrix, xavier_normal(), std::sqrt(2 / 500.0));
  // A convolution's kernel [out, in, height, width].
  check_uniform({64, 20, 5, 5}, uniform(Fan::in), 1 / std::sqrt(20 * 25.0));
  check_uniform({64, 20, 5, 5}, uniform(Fan::out), 1 / std::sqrt(64 * 25.0));
  CHECK(calculate_gain(Nonlinearity::selu) == 0.75);
  CHECK(calculate_gain(Nonlinearity::leaky_relu) == doctest::Approx(std::sqrt(2 / 1.0001)));
  CHECK(calculate_gain(Nonlinearity::sigmoid) == 1);
}

TEST_CASE("a truncated normal distribution") {
  // The deviation of a standard normal variable in [-2, 2].
  const double inside = 0.8796256610342398;
  const Shape matrix{300, 200};
  for (const auto& [values, deviation] : {std::pair{truncated_normal(), 1.0},
                                          {truncated_normal(0.1, 0, -0.2, 0.2), 0.1},
                                          {truncated_normal(Fan::in, 3), 3 / std::sqrt(200.0)},
                                          {truncated_normal(Fan::out), 1 / std::sqrt(300.0)}}) {
    const Moments moments(values_of(matrix, values));
    CHECK(std::abs(moments.mean) < 0.02 * deviation);
    CHECK(std::abs(moments.deviation - inside * deviation) < 0.01 * deviation);
    CHECK(moments.most <= 2 * deviation);
    CHECK(moments.least >= -2 * deviation);
    CHECK(moments.most > 1.99 * deviation);
  }
  const Moments one_sided(values_of(matrix, truncated_normal(1, 0, 0, 100)));  // half of a normal distribution
  CHECK(one_sided.least >= 0);
  CHECK(one_sided.mean == doctest::Approx(std::sqrt(2 / std::acos(-1.0))).epsilon(0.02));
  CHECK(Moments(values_of(matrix, truncated_normal(0, 0.5))).least == 0.5);
  CHECK(Moments(values_of(matrix, truncated_normal(0, 0.5))).most == 0.5);
  CHECK(Moments(values_of(matrix, truncated_normal(1, 0, 20, 30))).least >= 20);
}

TEST_CASE("orthogonal matrices") {
  check_orthogonal({40, 24}, 1);
  check_orthogonal({24, 40}, 2);
  check_orthogonal({32, 32}, 1);
  check_orthogonal({12, 3, 3, 3}, 1);
  check_orthogonal({1, 5}, 1);
  CHECK(values_of({40, 24}, orthogonal())[0] != values_of({40, 25}, orthogonal())[0]);
}

TEST_CASE("the same bits in every layout") {
  DefaultDevice device;
  SingleDevice<Everything> one(device, {});
  using Composition = FullyShardedDataParallel<TensorParallel<Everything>>;
  for (const auto& [ranks, tp_ranks, stage] : {std::tuple{2, 2, 0}, {2, 1, 3}, {4, 2, 3}, {4, 2, 1}}) {
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = ranks}, [&, tp_ranks = tp_ranks, stage = stage](World& world) {
            Mesh<dp, tp> mesh(world, {.tp = std::size_t(tp_ranks)});
            ModelOptions options;
            options.shard.stage = stage;
            Composition model(mesh, {}, options);
            for (const std::string& name : one.parameter_names()) {
              const auto values = model.parameter(name);
              std::lock_guard lock(mutex);
              INFO(name);
              CHECK(values == one.parameter(name));
            }
          }) == 0);
  }
}

TEST_CASE("layers start as PyTorch's do") {
  DefaultDevice device;
  const Root root(device, {});
  const auto values = [](const auto& parameter) {
    const auto* data = static_cast<const double*>(parameter.state().value().get());
    return std::vector<double>(data, data + parameter.state().size());
  };
  const Linear<> linear(root / "linear", 400, 300);
  const Linear<Whole, StoredAs::in_out> turned(root / "turned", 400, 300);
  for (const auto& all : {values(linear.weight), values(*linear.bias), values(turned.weight), values(*turned.bias)}) {
    const Moments moments(all);
    CHECK(std::max(moments.most, -moments.least) <= 1 / std::sqrt(400.0));
    CHECK(std::max(moments.most, -moments.least) > 0.97 / std::sqrt(400.0));
  }
  const Linear<> small(root / "small", 400, 300, {.standard_deviation = 0.02});
  CHECK(Moments(values(small.weight)).deviation == doctest::Approx(0.02).epsilon(0.02));
  CHECK(Moments(values(*small.bias)).deviation == 0);
  const Linear<> chosen(root / "chosen", 400, 300, {.initial_weight = xavier_normal(), .initial_bias = ones});
  CHECK(Moments(values(chosen.weight)).deviation == doctest::Approx(std::sqrt(2 / 700.0)).epsilon(0.02));
  CHECK(values(*chosen.bias) == std::vector<double>(300, 1.0));
  CHECK(Moments(values(Embedding(root / "table", 400, 300).table)).deviation == doctest::Approx(1).epsilon(0.02));
  CHECK(Moments(values(Embedding(root / "table", 400, 300, 0.02).table)).deviation == doctest::Approx(0.02).epsilon(0.02));
  CHECK(Moments(values(Embedding(root / "table", 400, 300, uniform(0.5)).table)).most <= 0.5);
}

TEST_CASE("values that a parameter cannot have are refused") {
  CHECK(weft_test::message<ShapeError>([] { values_of({5}, kaiming_uniform()); })
            .starts_with("weft: parameter weight [5]: its initial values are divided by a fan, and with fewer than two dims it "
                         "has none; give its layer's, "));
  CHECK(weft_test::message<ShapeError>([] { values_of({5}, orthogonal()); }) ==
        "weft: parameter weight [5]: orthogonal initial values are those of a matrix, of at least two dims");
  CHECK(values_of({5}, uniform(Fan::in).with_fans(4, 5)).size() == 5);
  for (const InitialValues& wrong : {normal(-1), uniform(1, 0), normal(std::nan("")), truncated_normal(1, 0, 1, -1)})
    CHECK(weft_test::message<UsageError>([&] {
            values_of({5, 5}, wrong);
          }).find("finite numbers, a deviation of at least 0 and bounds in order") != std::string::npos);
  DefaultDevice device;
  const Root root(device, {});
  CHECK(weft_test::message<UsageError>([&] {
          Linear<>(root / "both", 4, 4, {.standard_deviation = 0.1, .initial_weight = ones});
        }).starts_with("weft: layer both: LinearOptions::standard_deviation is given beside initial_weight or initial_bias"));
}

TEST_CASE("a surrogate reaches PyTorch's loss from the initial values of its layers") {
  CHECK(trained_surrogate({}) < 0.006);
  CHECK(trained_surrogate({.standard_deviation = 0.02}) > 0.01);  // the same program as it starts with small normal values
}
