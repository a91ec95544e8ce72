// SPDX-License-Identifier: Apache-2.0
#pragma once
// The models of examples/fields beside PyTorch (golden/fields.json, made by golden/make_fields.py): the losses of 20 steps of SGD
// with momentum, in double and in float in every layout. Parameters and samples are a formula of their place.
//
//   check_golden<Pinn>("pinn", module_layouts, {.width = 8}, [](std::size_t first, std::size_t count, std::size_t) {...});

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/optim/sgd.hpp>
#include <weft/weft.hpp>

#include "golden_numbers.hpp"

namespace weft_test {

using namespace weft;

struct GoldenLayout {
  int world;
  std::size_t tp = 1, pp = 1, micro_batches = 1;
  int zero = 0;
  std::size_t dx = 1, dy = 1, dz = 1;
};

/// Sets every parameter to fields_models.py's value(key, name, shape); the key is its place in the sorted names.
template <class M>
void set_golden_parameters(World& world, M& model) {
  std::vector<std::string> names = model.parameter_names();
  std::sort(names.begin(), names.end());
  for (std::size_t key = 0; key < names.size(); ++key) {
    std::uint64_t extents[] = {0, 0};  // rank and rows of the whole tensor; other stages do not have it
    model.for_each_state([&](const ParameterState& state) {
      if (state.name() == names[key]) extents[0] = state.global().rank(), extents[1] = state.global()[0];
    });
    world.communicator().all_reduce(std::span(extents), Reduction::max);
    std::vector<double> values(model.parameter(names[key]).size());
    const double fan = double(values.size()) / double(extents[1]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double plain = golden_number(key, i);
      values[i] = extents[0] > 1 ? plain * std::sqrt(3 / fan) : names[key].ends_with("weight") ? 1 + plain / 4 : plain / 4;
    }
    model.set_parameter(names[key], std::span<const double>(values));
  }
}

inline constexpr std::size_t golden_samples = 8;

/// The largest difference of a loss, as a part of it. D: the domain axes that cut the fields.
template <class Model, class... D>
double golden_difference(const std::string& name, const GoldenLayout& layout, const typename Model::Config& config,
                         const auto& batch_of) {
  std::ifstream in(std::string(WEFT_GOLDEN_FOLDER) + "/fields.json");
  REQUIRE(in);
  const auto losses = nlohmann::json::parse(in).at(name).template get<std::vector<double>>();
  REQUIRE(losses.size() == 20);
  REQUIRE(losses.back() < 0.99 * losses.front());  // it learns, so that the steps count
  std::mutex mutex;
  double largest = 0;
  const auto follow = [&](World& world, auto& model, const auto& mesh) {
    const data::Share share = data::share_of(mesh);
    set_golden_parameters(world, model);
    optim::Sgd optimizer(model, {.learning_rate = 0.02, .momentum = 0.9});
    const std::size_t here = golden_samples / std::size_t(share.size), first = here * std::size_t(share.rank);
    auto batch = [&] {
      if constexpr (sizeof...(D) == 0) return batch_of(first, here, layout.micro_batches);
      else return batch_of(first, here, layout.micro_batches, mesh);
    }();
    batch.samples = here, batch.first_sample = first, batch.micro_batches = layout.micro_batches;
    double worst = 0;
    for (const double loss : losses) {
      const double difference = std::abs(model.train_step(batch) - loss) / std::abs(loss);
      worst = std::max(worst, std::isfinite(difference) ? difference : 1e300);
      optimizer.step();
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, worst);
  };
  CHECK(run(RunOptions{.ranks = layout.world}, [&](World& world) {
          const ModelOptions options{.shard = {.stage = layout.zero}};
          if constexpr (sizeof...(D) != 0 && !weft::detail::StackModel<Model>) {
            const Mesh<dp, tp, D...> mesh(world, {.tp = layout.tp, .dx = layout.dx, .dy = layout.dy, .dz = layout.dz});
            FullyShardedDataParallel<TensorParallel<DomainParallel<Model, D...>>> model(mesh, config, options);
            follow(world, model, mesh);
          } else if constexpr (sizeof...(D) != 0) {
            const Mesh<dp, tp, pp, D...> mesh(
                world, {.tp = layout.tp, .pp = layout.pp, .dx = layout.dx, .dy = layout.dy, .dz = layout.dz});
            FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Model>, D...>>> model(mesh, config, options);
            follow(world, model, mesh);
          } else if constexpr (weft::detail::StackModel<Model>) {
            const Mesh<dp, tp, pp> mesh(world, {.tp = layout.tp, .pp = layout.pp});
            FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, config, options);
            follow(world, model, mesh);
          } else {
            const Mesh<dp, tp> mesh(world, {.tp = layout.tp});
            FullyShardedDataParallel<TensorParallel<Model>> model(mesh, config, options);
            follow(world, model, mesh);
          }
        }) == 0);
  return largest;
}

/// The model in double and in float in all of these layouts. If domain axes cut its fields, batch_of has the mesh as its last
/// argument.
template <template <class> class Model, class... D>
void check_golden(const std::string& name, const std::vector<GoldenLayout>& layouts, const typename Model<double>::Config& config,
                  const auto& batch_of) {
  for (const GoldenLayout& layout : layouts) {
    const double worst = golden_difference<Model<double>, D...>(name, layout, config, batch_of),
                 in_float = golden_difference<Model<float>, D...>(name, layout, config, batch_of);
    INFO(name << ", world " << layout.world << ", tp(" << layout.tp << "), pp(" << layout.pp << "), ZeRO " << layout.zero
              << ", space " << layout.dx << " x " << layout.dy << " x " << layout.dz << ": " << worst << ", in float "
              << in_float);
    CHECK(worst < 1e-10);
    CHECK(in_float < 1e-5);
  }
}

inline const std::vector<GoldenLayout> stack_layouts = {{1},          {2, 1, 1, 2, 1}, {4, 1, 1, 1, 3}, {2, 2},
                                                        {2, 1, 2, 2}, {4, 2, 1, 2, 2}, {4, 2, 2, 2},    {8, 2, 2, 2, 3}};
inline const std::vector<GoldenLayout> graph_layouts = {{1},    {1, 1, 1, 2},    {2, 1, 1, 1, 0, 2}, {4, 1, 1, 1, 0, 4},
                                                        {2, 2}, {4, 1, 1, 2, 3}, {4, 2, 1, 1, 0, 2}, {8, 2, 1, 2, 3, 2}};
inline const std::vector<GoldenLayout> layouts_of_space = {{.world = 2, .dx = 2},
                                                           {.world = 4, .dx = 2, .dy = 2},
                                                           {.world = 4, .zero = 3, .dy = 2},
                                                           {.world = 4, .tp = 2, .dx = 2},
                                                           {.world = 4, .pp = 2, .micro_batches = 2, .dx = 2}};
inline const std::vector<GoldenLayout> module_layouts = {{1},    {1, 1, 1, 2},    {2, 1, 1, 2, 1}, {4, 1, 1, 1, 3},
                                                         {2, 2}, {4, 2, 1, 2, 2}, {4, 4, 1, 1},    {8, 2, 1, 1, 3}};

}  // namespace weft_test
