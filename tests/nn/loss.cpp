// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/loss_sum.hpp
// Cross-entropy and sums of losses against plain loops in double: targets that do not count, a padded vocabulary, columns cut
// over tp, rows cut over dp.
#include <weft/nn/loss.hpp>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/autograd/loss_sum.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;
constexpr std::size_t tokens = 5, vocabulary = 7, padded = 8;
const std::vector<std::int32_t> targets{3, -1, 6, 0, -100};

Root root(DefaultDevice& device) {
  detail::Environment environment;
  environment.length = environment.rows = tokens;
  return Root(device, environment);
}
// Rows differ so much that the exponential of a logit relative to another row's maximum overflows; all are exact in double.
double part_of_row(std::size_t row, std::size_t column) { return std::round(std::sin(double(3 * row + column)) * 4096) / 1024; }
double logit(std::size_t row, std::size_t column) {
  return column < vocabulary ? 1000.0 * double(row) + part_of_row(row, column) : 1e6;
}

struct Expected {
  double loss = 0;
  std::vector<double> difference = std::vector<double>(tokens * padded, 0);
};
Expected expected() {
  Expected all;
  for (std::size_t row = 0; row < tokens; ++row) {
    if (targets[row] < 0) continue;
    double sum = 0;
    for (std::size_t j = 0; j < vocabulary; ++j) sum += std::exp(part_of_row(row, j));
    all.loss += std::log(sum) - part_of_row(row, std::size_t(targets[row]));
    for (std::size_t j = 0; j < vocabulary; ++j)
      all.difference[row * padded + j] = std::exp(part_of_row(row, j)) / sum - (int(j) == targets[row] ? 1 : 0);
  }
  return all;
}
template <class X, class T>
X tensor(DefaultDevice& device, const Shape& shape, const std::vector<T>& values) {
  X x(device, shape);
  copy_from_host(x, std::span<const T>(values));
  return x;
}

}  // namespace

TEST_CASE("cross-entropy and its gradient, whole and with the vocabulary cut over tp") {
  const Expected whole = expected();
  for (const int ranks : {1, 2}) {
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
            auto& device = world.device();
            const auto context = root(device).with<Invariant<tp>>(tp{}, world.communicator());
            const std::size_t columns = padded / std::size_t(ranks), first = std::size_t(world.rank()) * columns;
            std::vector<double> mine(tokens * columns);
            for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = logit(i / columns, first + i % columns);
            const auto z = tensor<Tensor<double, Exec, Shard<tp, 1>>>(device, {tokens, columns}, mine);
            const auto ids = tensor<Tensor<std::int32_t, Exec, Invariant<tp>>>(device, {tokens}, targets);
            const auto result = cross_entropy(context, z, ids, vocabulary);
            const double loss = copy_to_host(result.output.sum())[0];
            const std::vector<double> difference = copy_to_host(result.saved);
            std::lock_guard lock(mutex);
            CHECK(loss == doctest::Approx(whole.loss).epsilon(1e-13));
            for (std::size_t i = 0; i < mine.size(); ++i)
              CHECK(std::abs(difference[i] - whole.difference[i / columns * padded + first + i % columns]) <= 1e-13);
          }) == 0);
  }
}

TEST_CASE("cross-entropy refuses fewer or more targets than rows") {
  DefaultDevice device;
  const auto context = root(device);
  const Tensor<double, Exec> logits(device, {tokens, padded});
  for (const std::size_t count : {tokens - 1, tokens + 1}) {
    const Tensor<std::int32_t, Exec> ids(device, {count});
    std::string message;
    try {
      (void)cross_entropy(context, logits, ids, vocabulary);
    } catch (const ShapeError& error) {
      message = error.what();
    }
    CHECK(message == "weft: cross_entropy([5, 8], [" + std::to_string(count) +
                         "]): expected logits [tokens, vocabulary] and targets [tokens]");
  }
}

TEST_CASE("losses of one's own: those that count, in double; a term of the sum where an axis cuts the tokens") {
  DefaultDevice device;
  const auto context = root(device);
  const auto losses = tensor<Tensor<double, Exec>>(device, {tokens}, std::vector<double>{1, 10, 2, 4, 100});
  const auto ids = tensor<Tensor<std::int32_t, Exec>>(device, {tokens}, targets);
  const auto sum = sum_losses(context, losses, ids);
  CHECK(copy_to_host(sum.sum())[0] == 7);
  CHECK(copy_to_host((sum + sum).sum())[0] == 14);
  CHECK(copy_to_host(mask_rows(losses, ids)) == std::vector<double>{1, 0, 2, 4, 0});
  const auto rows = tensor<Tensor<double, Exec>>(device, {tokens, 2}, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(copy_to_host(mask_rows(rows, ids)) == std::vector<double>{1, 2, 0, 0, 5, 6, 7, 8, 0, 0});
  using Cut = decltype(sum_losses(context, Tensor<double, Exec, Shard<dp, 0>, Invariant<tp>>(),
                                  Tensor<std::int32_t, Exec, Shard<dp, 0>, Invariant<tp>>()));
  static_assert(std::is_same_v<Cut, LossSum<Exec, Partial<dp>, Invariant<tp>>>);
  static_assert(detail::is_loss<Cut> && !detail::is_loss<Tensor<double, Exec>>);
}

TEST_CASE("a mean is no loss, and rows are those of the targets") {
  DefaultDevice device;
  const auto context = root(device);
  const auto ids = tensor<Tensor<std::int32_t, Exec>>(device, {tokens}, targets);
  std::string text;
  try {
    sum_losses(context, Tensor<double, Exec>(device, {1}), ids);
  } catch (const ShapeError& error) {
    text = error.what();
  }
  CHECK(text.starts_with("weft: sum_losses of [1] for 5 tokens: it takes one loss a token"));
  CHECK_THROWS_AS(mask_rows(Tensor<double, Exec>(device, {4, 2}), ids), ShapeError);
}
