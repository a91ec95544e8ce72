// SPDX-License-Identifier: Apache-2.0
// The networks of examples/08_imagenet in double: loss, gradients and logits equal torchvision's (golden/resnet.json, made by
// golden/make_resnet.py), over two data-parallel ranks and in a pipeline; initial values follow torchvision's rule.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "examples/08_imagenet/resnet.hpp"

using namespace imagenet;

namespace {

constexpr std::size_t samples = 4, size = 32;

/// make_resnet.py's numbers(key, ...)[place].
double number_at(std::uint64_t key, std::uint64_t place) {
  constexpr std::uint64_t mask = 0xffffffff;
  std::uint64_t mixed = (place * 2654435761u + key * 40503 * 65537) & mask;
  mixed = ((mixed ^ (mixed >> 15)) * 2246822519u) & mask;
  mixed = ((mixed ^ (mixed >> 13)) * 3266489917u) & mask;
  return (double(mixed >> 11) - 1048576) / 1048576;
}

/// make_resnet.py's value(key, name, shape); `fan`: the fan in of a kernel, 0 for other parameters.
std::vector<double> values_of(std::uint64_t key, const std::string& name, std::size_t count, std::size_t fan) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double plain = number_at(key, i);
    if (fan != 0) values[i] = plain * std::sqrt(6.0 / double(fan));
    else if (name == "fc.weight") values[i] = plain / 8;
    else values[i] = name.ends_with("weight") ? 1 + plain / 4 : plain / 4;
  }
  return values;
}

Images share_of(std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Images batch;
  batch.samples = samples / ranks;
  batch.first_sample = rank * batch.samples;
  batch.micro_batches = micro_batches;
  auto pictures = batch[image].resize(batch.samples, {3, size, size});
  auto labels = batch[label].resize(batch.samples, {});
  const std::size_t first = batch.first_sample * 3 * size * size;
  for (std::size_t i = 0; i < pictures.size(); ++i) pictures[i] = float(number_at(1000, first + i));
  for (std::size_t i = 0; i < batch.samples; ++i) labels[i] = std::int32_t((batch.first_sample + i) * 3 % 7);
  return batch;
}

/// The fan in of each kernel on this rank, 0 for other parameters.
template <class M>
std::map<std::string, std::size_t> fans_of(M& model) {
  std::map<std::string, std::size_t> fans;
  model.for_each_state([&](const ParameterState& state) {
    const Shape& shape = state.global();
    fans[state.name()] = shape.rank() == 4 ? shape[1] * shape[2] * shape[3] : 0;
  });
  return fans;
}

template <class Block>
void compare(std::size_t depth, std::size_t dp_ranks, std::size_t pp_ranks) {
  CAPTURE(depth);
  CAPTURE(dp_ranks);
  CAPTURE(pp_ranks);
  std::ifstream file(WEFT_GOLDEN_FOLDER "/resnet.json");
  const nlohmann::json wanted = nlohmann::json::parse(file).at(std::to_string(depth));
  const int code = run<comm::Threads>(RunOptions{.ranks = int(dp_ranks * pp_ranks), .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp, pp> mesh(world, {.dp = dp_ranks, .pp = pp_ranks});
    FullyShardedDataParallel<PipelineParallel<ResNet<double, Block>>> model(
        mesh, {.classes = 7, .depth = depth, .label_smoothing = 0.1}, {.shard = {.stage = dp_ranks > 1 ? 2 : 0}});
    const auto fans = fans_of(model);
    std::vector<std::string> names = model.parameter_names();
    std::sort(names.begin(), names.end());
    REQUIRE(names.size() == wanted.at("gradients").size());
    std::map<std::string, std::vector<double>> before;
    for (std::size_t key = 0; key < names.size(); ++key) {
      std::uint64_t fan[] = {fans.contains(names[key]) ? fans.at(names[key]) : 0};
      world.communicator().all_reduce(std::span(fan), Reduction::max);  // other stages have other parameters
      before[names[key]] = values_of(key, names[key], model.parameter(names[key]).size(), fan[0]);
      model.set_parameter(names[key], std::span<const double>(before[names[key]]));
    }
    optim::Sgd optimizer(model, {.learning_rate = 1});
    const Images batch = share_of(std::size_t(mesh.rank(dp{})), dp_ranks, 1);
    const double loss = model.train_step(batch);
    optimizer.step(0);  // ends the step, and with it the running statistics
    const Prediction scores = model.predict(batch, Gather::whole);
    model.train_step(batch);
    optimizer.step(1);
    if (world.rank() == 0) {
      CHECK(std::abs(loss - wanted.at("loss").template get<double>()) < 1e-6);
      const auto logits = wanted.at("logits").template get<std::vector<double>>();
      REQUIRE(scores.values.size() == logits.size());
      double largest = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) largest = std::max(largest, std::abs(scores.values[i] - logits[i]));
      CHECK(largest < 1e-5);
    }
    for (const std::string& name : names) {
      const std::vector<double> after = model.parameter(name);
      if (world.rank() != 0) continue;
      CAPTURE(name);
      std::vector<double> gradient(after.size());
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        gradient[i] = before[name][i] - after[i];
        sum += gradient[i];
        squares += gradient[i] * gradient[i];
      }
      const auto facts = wanted.at("gradients").at(name).template get<std::vector<double>>();
      const double norm = std::sqrt(facts[1]), root = std::sqrt(double(gradient.size()));
      CHECK(std::abs(sum - facts[0]) < 1e-6 * norm * root);
      CHECK(std::abs(std::sqrt(squares) - norm) < 1e-6 * norm);
      const std::size_t places[] = {0, gradient.size() / 3, gradient.size() - 1};
      for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(gradient[places[i]] - facts[2 + i]) < 1e-6 * norm);
    }
  });
  CHECK(code == 0);
}

/// The numbers of a parameter are draws of the distribution: mean, variance and fourth moment within six standard errors.
/// `kurtosis`: 3 for a normal distribution, 9/5 for a uniform one.
void check_draws(const std::vector<double>& values, double variance, double kurtosis) {
  const double n = double(values.size());
  double sum = 0, squares = 0, fourths = 0, eighths = kurtosis == 3 ? 105 : 9;  // E[x^8] / variance^4
  for (const double value : values) {
    const double square = value * value / variance;
    sum += value, squares += square, fourths += square * square;
  }
  CHECK(std::abs(sum / n) <= 6 * std::sqrt(variance / n));
  CHECK(std::abs(squares / n - 1) <= 6 * std::sqrt((kurtosis - 1) / n));
  CHECK(std::abs(fourths / n - kurtosis) <= 6 * std::sqrt((eighths - kurtosis * kurtosis) / n));
}

/// torchvision's rule: kaiming_normal_(fan_out, relu) for convolutions, 1 and 0 for norms, nn.Linear's uniform for the
/// classifier.
template <class Block>
void check_initial_values(std::size_t depth, std::size_t convolutions, std::size_t last_width) {
  constexpr std::size_t classes = 100;
  std::size_t kernels = 0, norms = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = 1}, [&](World& world) {
    Mesh<dp, pp> mesh(world);
    FullyShardedDataParallel<PipelineParallel<ResNet<double, Block>>> model(mesh, {.classes = classes, .depth = depth});
    model.for_each_state([&](const ParameterState& state) {
      const std::string name = state.name();
      CAPTURE(name);
      const Shape& shape = state.global();
      const std::vector<double> values = model.parameter(name);
      if (name.starts_with("fc.")) {
        const double bound = 1 / std::sqrt(double(last_width));
        REQUIRE(values.size() == (name == "fc.bias" ? classes : classes * last_width));
        for (const double value : values) REQUIRE(std::abs(value) <= bound);
        check_draws(values, bound * bound / 3, 1.8);
      } else if (shape.rank() == 4) {
        ++kernels;
        check_draws(values, 2.0 / double(shape[0] * shape[2] * shape[3]), 3);
      } else {
        ++norms;
        for (const double value : values) REQUIRE(value == (name.ends_with("weight") ? 1 : 0));
      }
    });
  });
  CHECK(code == 0);
  CHECK(kernels == convolutions);
  CHECK(norms == 2 * convolutions);
}

}  // namespace

TEST_CASE("ResNet-18 equals torchvision's") { compare<BasicBlock>(18, 2, 1); }

TEST_CASE("a network of bottlenecks equals torchvision's") { compare<Bottleneck>(14, 1, 2); }

TEST_CASE("initial values are torchvision's") {
  SUBCASE("ResNet-18") { check_initial_values<BasicBlock>(18, 20, 512); }
  SUBCASE("ResNet-50") { check_initial_values<Bottleneck>(50, 53, 2048); }
}
