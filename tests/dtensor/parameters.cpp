// SPDX-License-Identifier: Apache-2.0
// A model of DTensors trained by weft's optimizers: the parameters after some steps are those of one rank, for several plans.

#include "dtensor/operations_support.hpp"

#include <weft/dtensor/parameters.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/muon.hpp>
#include <weft/optim/sgd.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;
using Local = Tensor<double, DefaultDevice::execution_space>;

namespace {

std::vector<std::pair<std::string, Local>> whole_parameters(World& world) {
  std::vector<std::pair<std::string, Local>> all;
  const auto add = [&](const char* name, const Shape& shape) {
    Local x(world.device(), shape);
    std::vector<double> values;
    for (std::size_t i = 0; i < x.size(); ++i) values.push_back(value_at(site_of(name), i) / 2);
    copy_from_host(x, std::span<const double>(values));
    all.emplace_back(name, x);
  };
  add("mlp.up", {6, 7});
  add("mlp.bias", {7});
  add("mlp.down", {7, 5});
  add("unused", {3});
  return all;
}

// The whole parameters after three steps.
template <class Optimizer, class Options>
std::vector<std::vector<double>> trained(World& world, const Communicator& ranks, const dtensor::DeviceMesh& mesh,
                                         const std::vector<dtensor::PlanLine>& plan, const Placements& data,
                                         const Options& options, double& norm) {
  dtensor::Parameters<double> parameters(ranks, dtensor::distribute_parameters(mesh, whole_parameters(world), plan));
  Optimizer optimizer(parameters, options);
  for (std::uint64_t step = 0; step < 3; ++step) {
    // Two micro-batches, whose gradients add up.
    for (std::uint64_t micro = 0; micro < 2; ++micro) {
      const auto key = key_of(step, micro);
      const D x = make<double>(world, mesh, {9, 6}, data, [&](std::size_t i) { return value_at(key, i); });
      const I labels = make<std::int32_t>(world, mesh, {9}, data, [&](std::size_t i) { return double(key_of(key, i) % 5); });
      const D hidden = gelu(matmul(x, parameters["mlp.up"]) + parameters["mlp.bias"]);
      cross_entropy(matmul(hidden, parameters["mlp.down"]), labels).backward();
    }
    norm = optimizer.step().gradient_norm;
  }
  std::vector<std::vector<double>> all;
  for (const auto& [name, tensor] : parameters.named()) all.push_back(copy_to_host(tensor.full_tensor()));
  return all;
}

template <class Optimizer, class Options>
void check_plans(const Options& options) {
  on(4, [&](World& world) {
    const Communicator self(std::make_shared<comm::SelfGroup>("alone"));
    double norm = 0;
    const auto expected = trained<Optimizer>(world, self, dtensor::DeviceMesh(self), {}, Placements(1), options, norm);
    CHECK(expected[3] == copy_to_host(whole_parameters(world)[3].second));  // no gradient, no decay
    CHECK(norm > 0.05);                                                     // clipped in the test of AdamW
    CHECK(expected[0] != copy_to_host(whole_parameters(world)[0].second));
    const dtensor::DeviceMesh grid(Mesh<dp, tp>(world, {.tp = 2}), dp{}, tp{});
    const std::vector<dtensor::PlanLine> plans[] = {
        {},  // data parallel
        {{"mlp.up", {replicate(), shard(1)}}, {"*.bias", {replicate(), shard(0)}}, {"*.down", {replicate(), shard(0)}}},
        {{"*", {shard(0), replicate()}}},  // fully sharded
        {{"mlp.*", {shard(0), shard(0)}}, {"unused", {replicate(), shard(0)}}},
    };
    for (const auto& plan : plans)
      for (const Placements& data : {Placements{shard(0), replicate()}, Placements{replicate(), replicate()}}) {
        double own = 0;
        const auto got = trained<Optimizer>(world, world.communicator(), grid, plan, data, options, own);
        CHECK(own == doctest::Approx(norm).epsilon(1e-12));
        double worst = 0;
        for (std::size_t k = 0; k < got.size(); ++k)
          for (std::size_t i = 0; i < got[k].size(); ++i) worst = std::max(worst, std::abs(got[k][i] - expected[k][i]));
        CHECK(worst <= 1e-12);
      }
  });
}

}  // namespace

TEST_CASE("AdamW with clipping") {
  check_plans<optim::AdamW>(optim::AdamWOptions{.learning_rate = 0.01, .weight_decay = 0.1, .clip = 0.05});
}
TEST_CASE("SGD with momentum") { check_plans<optim::Sgd>(optim::SgdOptions{.learning_rate = 0.1, .momentum = 0.9}); }

TEST_CASE("wrong parameters, plans and steps") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const auto whole = whole_parameters(world);
    CHECK_THROWS_WITH_AS(dtensor::distribute_parameters(grid, whole, {{"mlp.upp", {shard(0)}}}),
                         "weft: dtensor: distribute_parameters: the pattern mlp.upp matches no tensor; similar names: mlp.up, "
                         "mlp.bias, mlp.down",
                         UsageError);
    const auto named = dtensor::distribute_parameters(grid, whole, {{"mlp.up", {shard(0)}}});
    CHECK(named[0].second.placements() == Placements{shard(0)});
    CHECK(named[1].second.placements() == Placements{replicate()});
    dtensor::Parameters<double> parameters(world.communicator(), named);
    CHECK_THROWS_WITH_AS(parameters["mlp"], "weft: dtensor: no parameter mlp; similar names: mlp.up, mlp.bias, mlp.down",
                         UsageError);
    optim::Sgd optimizer(parameters, {.learning_rate = 1});
    CHECK_THROWS_AS(optimizer.step(), UsageError);  // no backward yet
    sum(parameters["mlp.up"]).backward();
    optimizer.step();
    CHECK(copy_to_host(parameters["mlp.up"].full_tensor())[0] == value_at(site_of("mlp.up"), 0) / 2 - 1);
    CHECK_THROWS_AS(optimizer.step(), UsageError);  // these gradients are applied
    CHECK_THROWS_WITH_AS(
        optim::Muon(parameters, {}),
        "weft: dtensor: this optimizer's rule needs whole rows or matrices, and ranks hold parts of DTensors: use "
        "an elementwise rule, optim::AdamW or optim::Sgd",
        UsageError);
    const auto terms = [&] {
      return dtensor::NamedTensors<double>{{"w", distribute_tensor(grid, whole[0].second, {partial()})}};
    };
    CHECK_THROWS_WITH_AS(dtensor::Parameters<double>(world.communicator(), terms()),
                         "weft: dtensor: parameter w [partial(sum)]: an update of each term would be made once for each rank; "
                         "redistribute it first",
                         UsageError);
    CHECK_THROWS_WITH_AS(
        dtensor::Parameters<double>(Communicator(std::make_shared<comm::SelfGroup>("alone")), named),
        "weft: dtensor: Parameters on dp(2) with a communicator of 1 ranks: give the one of all ranks of the mesh", UsageError);
  });
}
