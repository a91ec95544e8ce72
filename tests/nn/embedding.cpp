// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token and by position, and their gradients, on one rank and with the table cut over tp, against plain loops.
#include <weft/nn/embedding.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/engine/parameter_values.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;
constexpr std::size_t vocabulary = 7, width = 3, length = 4;
const std::vector<std::int32_t> tokens{0, 6, 2, 6, 3, 1, 6, 0};

Root root(DefaultDevice& device) {
  detail::Environment environment;
  environment.length = length;
  environment.rows = tokens.size();
  return Root(device, environment);
}
std::vector<float> gradient() {
  std::vector<float> g(tokens.size() * width);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = float(i % 5) - 2;
  return g;
}
template <class F>
void for_elements(DefaultDevice& device, const detail::Buffer& buffer, F&& f) {
  device.exec().fence("test");
  f(static_cast<const float*>(buffer.get()));
}

struct Results {
  std::vector<float> y, gradient;  // of the table, from its row `first` on
  std::size_t first = 0, rows = 0;
};
template <class Layer, class Context, class X>
Results through(const Context& context, Layer& layer, const X& x, ParameterState& state) {
  auto step = layer.forward(context, x);
  Results results{.y = copy_to_host(step.output), .gradient = {}};
  auto g = step.output;
  copy_from_host(g, std::span<const float>(gradient()));
  state.gradients().begin_step();
  weft::backward(layer, context, std::move(step.saved), g);
  for_elements(context.device(), state.gradients().layer_buffer(),
               [&](const float* data) { results.gradient.assign(data, data + state.size()); });
  results.rows = state.local()[0];
  return results;
}

}  // namespace

TEST_CASE("rows of the table by token; their gradients are sums over the tokens") {
  DefaultDevice device;
  const auto context = root(device);
  Embedding layer(context, vocabulary, width);
  std::vector<float> table;
  for_elements(device, layer.table.state().value(), [&](const float* data) { table.assign(data, data + vocabulary * width); });
  Tensor<std::int32_t, Exec> ids(device, {tokens.size()});
  copy_from_host(ids, std::span<const std::int32_t>(tokens));
  const Results alone = through(context, layer, ids, layer.table.state());
  std::vector<float> sums(vocabulary * width, 0);
  for (std::size_t i = 0; i < tokens.size() * width; ++i) {
    CHECK(alone.y[i] == table[std::size_t(tokens[i / width]) * width + i % width]);
    sums[std::size_t(tokens[i / width]) * width + i % width] += gradient()[i];
  }
  CHECK(alone.gradient == sums);
  // 7 rows over 2 ranks: 4 and 3, and one that nothing reads.
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          const auto here = root(world.device()).with<Invariant<tp>>(tp{}, world.communicator());
          Embedding cut(here, vocabulary, width);
          Tensor<std::int32_t, Exec, Invariant<tp>> mine(world.device(), {tokens.size()});
          copy_from_host(mine, std::span<const std::int32_t>(tokens));
          const Results results = through(here, cut, mine, cut.table.state());
          std::lock_guard lock(mutex);
          CHECK(results.rows == 4);
          CHECK(results.y == alone.y);
          for (std::size_t row = 0; row < 4 && std::size_t(world.rank()) * 4 + row < vocabulary; ++row)
            for (std::size_t i = 0; i < width; ++i)
              CHECK(results.gradient[row * width + i] == sums[(std::size_t(world.rank()) * 4 + row) * width + i]);
        }) == 0);
}

TEST_CASE("an id that is no row is an error, cut tables and wide ids included") {
  DefaultDevice device;
  const auto context = root(device);
  Embedding layer(context, vocabulary, width);
  for (const std::int64_t wrong : {std::int64_t(vocabulary), std::int64_t(-1), std::int64_t(1) << 32}) {
    Tensor<std::int64_t, Exec> ids(device, {2});
    copy_from_host(ids, std::span<const std::int64_t>(std::vector<std::int64_t>{3, wrong}));
    const std::string text = "Embedding: id " + std::to_string(wrong) + " at 1 is not one of 7 rows, 0 to 6";
    CHECK_THROWS_WITH_AS(layer.forward(context, ids), doctest::Contains(text.c_str()), UsageError);
  }
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          const auto here = root(world.device()).with<Invariant<tp>>(tp{}, world.communicator());
          Embedding cut(here, vocabulary, width);
          Tensor<std::int32_t, Exec, Invariant<tp>> ids(world.device(), {1});
          copy_from_host(ids, std::span<const std::int32_t>(std::vector<std::int32_t>{7}));  // a row of the padding
          CHECK_THROWS_AS(cut.forward(here, ids), UsageError);
        }) == 0);
}

TEST_CASE("learned positions start anew with each sequence; longer ones are refused") {
  DefaultDevice device;
  const auto context = root(device);
  LearnedPositions layer(context, length, width);
  std::vector<float> table;
  for_elements(device, layer.table.state().value(), [&](const float* data) { table.assign(data, data + length * width); });
  Tensor<float, Exec> x(device, {tokens.size(), width});
  copy_from_host(x, std::span<const float>(std::vector<float>(tokens.size() * width, 1.f)));
  const Results results = through(context, layer, x, layer.table.state());
  std::vector<float> sums(length * width, 0);
  for (std::size_t i = 0; i < tokens.size() * width; ++i) {
    const std::size_t at = i / width % length * width + i % width;
    CHECK(results.y[i] == 1.f + table[at]);
    sums[at] += gradient()[i];
  }
  CHECK(results.gradient == sums);
  LearnedPositions few(context, length - 1, width);
  CHECK_THROWS_AS(few.forward(context, x), ShapeError);
}
