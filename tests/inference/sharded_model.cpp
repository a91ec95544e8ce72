// SPDX-License-Identifier: Apache-2.0
// A trained model cut over tp as a function of arrays: one rank's outputs, from Views of every layout, of a model in training
// and of given parameters.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include <weft/inference/model.hpp>
#include <weft/inference/sharded_model.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

#include "inference/models.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {

constexpr std::size_t inputs = 5, outputs = 3, most = 7;
template <class S>
constexpr double tolerance = std::is_same_v<S, double> ? 1e-14 : 2e-6;

/// Steps of training on this rank's share of eight samples.
template <class S, class M>
void train(M& model, std::size_t rank, std::size_t ranks) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  const std::vector<double> x = numbers(8 * inputs, 7), y = numbers(8 * outputs, 8);
  const std::size_t here = 8 / ranks;
  typename Mlp<S>::Batch batch{.samples = here, .first_sample = rank * here};
  batch[in].view(std::span(x).subspan(rank * here * inputs, here * inputs), {inputs});
  batch[out].view(std::span(y).subspan(rank * here * outputs, here * outputs), {outputs});
  for (int step = 0; step < 3; ++step) {
    model.train_step(batch);
    optimizer.step();
  }
}

/// The outputs for `samples` rows, of any inference model.
template <class Net>
std::vector<double> called(Net& net, std::size_t samples) {
  const std::vector<double> x = numbers(samples * inputs, samples);
  Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> turned("x", samples, inputs), y("y", samples, outputs);
  for (std::size_t i = 0; i < samples; ++i)
    for (std::size_t j = 0; j < inputs; ++j) turned(i, j) = x[i * inputs + j];
  net(turned, y);
  std::vector<double> all;
  for (std::size_t i = 0; i < samples; ++i)
    for (std::size_t j = 0; j < outputs; ++j) all.push_back(y(i, j));
  return all;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, largest = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  REQUIRE(largest > 1e-3);
  return worst / largest;
}

}  // namespace

TEST_CASE_TEMPLATE("tp ranks together give one rank's outputs", S, double, float) {
  const typename Mlp<S>::Config config{.inputs = inputs, .width = 48, .outputs = outputs, .dropout = 0.5};
  for (const std::size_t ranks : {1, 2, 4}) {
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = int(ranks)}, [&](World& world) {
            const Mesh mesh(world, axes<tp>, {.tp = ranks});
            DefaultDevice device;
            SingleDevice<Mlp<S>> one(device, config);
            train<S>(one, 0, 1);
            inference::Model<Mlp<S>> whole(one);
            inference::ShardedModel<Mlp<S>> given(mesh, config, [&](auto& model) {
              for (const std::string& name : one.parameter_names())
                model.set_parameter(name, std::span<const double>(one.parameter(name)));
            });
            for (const std::size_t samples : {std::size_t(1), std::size_t(2), most}) {
              const std::vector<double> found = called(given, samples), expected = called(whole, samples);
              const std::scoped_lock lock(mutex);
              CHECK(difference(found, expected) <= tolerance<S>);
            }
          }) == 0);
  }
}

TEST_CASE_TEMPLATE("a copy of a model in training on a larger mesh", M, Mlp<double>, Chain<double>) {
  const typename M::Config config{.inputs = inputs, .width = 48, .outputs = outputs};
  std::mutex mutex;
  std::vector<std::vector<double>> all;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<dp, tp>, {.tp = 2, .dp = 2});
          DataParallel<TensorParallel<M>> model(mesh, config);
          train<double>(model, std::size_t(mesh.rank(dp{})), 2);
          inference::ShardedModel<M> net(mesh[axes<tp>], model);
          const std::vector<double> x = numbers(4 * inputs, 4);
          typename M::Batch batch{.samples = 2, .first_sample = std::size_t(mesh.rank(dp{})) * 2};
          batch[in].view(std::span(x).subspan(batch.first_sample * inputs, 2 * inputs), {inputs});
          const std::vector<double> predicted = model.predict(batch, Gather::whole).values;
          const std::vector<double> found = called(net, 4);
          train<double>(model, std::size_t(mesh.rank(dp{})), 2);
          const std::vector<double> later = called(net, 4);
          const std::scoped_lock lock(mutex);
          CHECK(difference(found, predicted) <= 1e-15);
          CHECK(later == found);
          all.push_back(found);
        }) == 0);
  REQUIRE(all.size() == 4);
  for (const auto& one : all) CHECK(one == all[0]);
}

TEST_CASE("ranks with other inputs are refused") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          const Mesh mesh(world, axes<tp>, {.tp = 2});
          inference::ShardedModel<Mlp<double>> net(mesh, {}, [](auto&) {});
          std::vector<double> x{1, 2, double(world.rank())}, y(1);
          const std::string text = message<UsageError>([&] { net(x, y); });
          const std::scoped_lock lock(mutex);
          CHECK(text.starts_with("weft: ranks disagree about the inputs of inference::ShardedModel: rank 0 has [1, 3], "));
          CHECK(text.ends_with("give all ranks of tp the same inputs"));
        }) == 0);
}
