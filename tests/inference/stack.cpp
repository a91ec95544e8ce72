// SPDX-License-Identifier: Apache-2.0
// covers: weft/inference/units.hpp
// A stack as a function of arrays: the bits of model.predict for chains of units and a U-Net, by threads at the same time.

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <weft/inference/units.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>

#include "inference/models.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {

using Rows = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Images = Kokkos::View<double****, Kokkos::LayoutRight, Kokkos::HostSpace>;

template <class M>
void train(SingleDevice<M>& model, typename M::Batch& batch) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  for (int step = 0; step < 3; ++step) {
    model.train_step(batch);
    optimizer.step();
  }
}

template <class S>
struct Trained {
  DefaultDevice device;
  SingleDevice<Chain<S>> model;
  explicit Trained(const typename Chain<S>::Config& config) : model(device, config) {
    const std::vector<double> x = numbers(16 * config.inputs, 7), y = numbers(16 * config.outputs, 8);
    typename Chain<S>::Batch batch{.samples = 16};
    batch[in].view(std::span<const double>(x), {config.inputs});
    batch[out].view(std::span<const double>(y), {config.outputs});
    train(model, batch);
  }
};

/// A U-Net of five units, whose values are tuples of images of two sizes.
struct Net {
  using scalar = double;
  using Batch = FieldBatch<in, out>;
  struct Config {
    std::size_t channels = 4;
  };
  struct Block : Module<Block> {
    Conv2d<> conv;
    GroupNorm<> norm;
    Block(const auto& at, std::size_t from, std::size_t to)
        : conv(at / "conv", from, to, 3, {.padding = 1, .mode = PaddingMode::periodic}), norm(at / "norm", 2, to) {}
    auto forward(const auto& x) const { return silu(norm(conv(x))); }
  };
  struct First : Module<First> {
    Block block;
    First(const auto& at, const Config& c) : block(at / "block", 2, c.channels) {}
    auto forward(const auto& batch) const {
      const auto e = block(batch[in]);
      return std::tuple(e, max_pool2d(e));
    }
  };
  struct Second : Module<Second> {
    Block block;
    BatchNorm<> norm;
    Second(const auto& at, const Config& c)
        : block(at / "block", c.channels, 2 * c.channels), norm(at / "norm", 2 * c.channels) {}
    auto forward(const auto& e, const auto& x) const { return std::tuple(e, norm(block(x))); }
  };
  struct Third : Module<Third> {
    auto forward(const auto& e, const auto& x) const { return concat<1>(e, upsample(x, {.mode = UpsampleMode::linear})); }
    Third(const auto&, const Config&) {}
  };
  struct Fourth : Module<Fourth> {
    Block block;
    Fourth(const auto& at, const Config& c) : block(at / "block", 3 * c.channels, c.channels) {}
    auto forward(const auto& x) const { return block(x); }
  };
  struct Last : Module<Last> {
    Conv2d<> last;
    Last(const auto& at, const Config& c) : last(at / "last", c.channels, 1, 1) {}
    auto predict(const auto& x) const { return last(x); }
    auto forward(const auto& x, const auto& batch) const { return mse(predict(x), batch[out]); }
  };
  static auto stack(const auto& context, const Config& c) {
    return Stack([=] { return First(context / "first", c); }, [=] { return Second(context / "second", c); },
                 [=] { return Third(context / "third", c); }, [=] { return Fourth(context / "fourth", c); },
                 [=] { return Last(context / "last", c); });
  }
};

/// A stack whose last unit's predictions read the second field.
struct Reader {
  using scalar = double;
  using Batch = FieldBatch<in, out>;
  struct Config {};
  struct First : Module<First> {
    Linear<> layer;
    First(const auto& at, const Config&) : layer(at / "layer", 3, 2) {}
    auto forward(const auto& batch) const { return layer(batch[in]); }
  };
  struct Last : Module<Last> {
    auto predict(const auto& x, const auto& batch) const { return x + batch[out]; }
    auto forward(const auto& x, const auto& batch) const { return mse(x, batch[out]); }
  };
  static auto stack(const auto& context, const Config& c) {
    return Stack([=] { return First(context / "first", c); }, [] { return Last(); });
  }
};

}  // namespace

TEST_CASE_TEMPLATE("a stack's call has the bits of the model's predictions", S, float, double) {
  for (const std::size_t blocks : {0, 1, 3}) {
    Trained<S> trained({.inputs = 5, .blocks = blocks, .outputs = 3, .dropout = 0.5});
    inference::Model<Chain<S>> net(trained.model);
    for (const std::size_t samples : {1, 2, 5, 64, 3}) {
      const std::vector<double> x = numbers(samples * 5);
      Kokkos::View<const double**, Kokkos::LayoutRight, Kokkos::HostSpace> given(x.data(), samples, 5);
      Rows result("result", samples, 3);
      net(given, result);
      CHECK(std::vector<double>(result.data(), result.data() + samples * 3) == predicted(trained.model, x, 5));
      CHECK(std::equal(x.begin(), x.end(), numbers(samples * 5).begin()));
      // The same from columns.
      Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> left("x", samples, 5), other("y", samples, 3);
      Kokkos::deep_copy(left, given);
      net(left, other);
      for (std::size_t i = 0; i < samples; ++i)
        for (std::size_t j = 0; j < 3; ++j) CHECK(other(i, j) == result(i, j));
    }
  }
}

TEST_CASE("a U-Net's call has the bits of its predictions, by threads at the same time") {
  constexpr std::size_t samples = 3, side = 8, pixels = side * side;
  DefaultDevice device;
  SingleDevice<Net> model(device, {});
  Net::Batch batch{.samples = samples};
  const std::vector<double> x = numbers(samples * 2 * pixels), y = numbers(samples * pixels, 3);
  batch[in].view(std::span<const double>(x), {2, side, side});
  batch[out].view(std::span<const double>(y), {1, side, side});
  train(model, batch);
  const std::vector<double> expected = model.predict(batch).values;
  inference::Model<Net> net(model);
  const auto check = [&](int calls) {
    Images given("x", samples, 2, side, side), result("y", samples, 1, side, side);
    std::copy(x.begin(), x.end(), given.data());
    std::size_t right = 0;
    for (int call = 0; call < calls; ++call) {
      Kokkos::deep_copy(result, 0);
      net(given, result);
      right += std::equal(expected.begin(), expected.end(), result.data());
    }
    return right;
  };
  CHECK(check(2) == 2);
  CHECK(net.replicas() == 1);
  std::vector<std::size_t> right(3);
  std::vector<std::thread> threads;
  for (std::size_t& one : right) threads.emplace_back([&] { one = check(40); });
  for (std::thread& one : threads) one.join();
  CHECK(right == std::vector<std::size_t>(3, 40));
  CHECK(net.replicas() <= 3);
}

TEST_CASE("the inputs are the first fields; a stack that reads another one is refused") {
  DefaultDevice device;
  SingleDevice<Reader> model(device, {});
  inference::Model<Reader> net(model);
  const std::vector<double> x = numbers(3), b = {10, 20};
  std::vector<double> y(2), sum(2);
  Reader::Batch batch{.samples = 1};
  batch[in].view(std::span<const double>(x), {3});
  batch[out].view(std::span<const double>(b), {2});
  net(x, b, sum);
  CHECK(sum == model.predict(batch).values);
  const std::string refused = message<UsageError>([&] { net(x, y); });
  CHECK(refused.find("field out") != std::string::npos);
  net(x, b, y);  // the object is as before
  CHECK(y == sum);
}
