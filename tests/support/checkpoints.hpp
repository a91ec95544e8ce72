// SPDX-License-Identifier: Apache-2.0
#pragma once
// Trainings that are saved, ended and resumed, for tests that compare every byte of the state.

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/parallel/hook/power_sgd.hpp>

#include "support/checkpoint_tensors.hpp"
#include "support/experts.hpp"
#include "support/matrix.hpp"
#include "support/temporary_folder.hpp"

namespace weft_test {

/// A rank's state after a run, as bytes.
struct Ending {
  std::vector<double> losses;
  std::map<std::string, std::vector<std::byte>> state;
  std::vector<double> numbers;
};

template <class Model, class Optimizer>
void take_state(Ending& ending, Model& model, Optimizer& optimizer) {
  const auto state = checkpoint::detail::whole_state(model, optimizer);
  for (const auto& item : state.items) {
    const auto bytes = item.read();
    // Padding is no state.
    auto& to = ending.state[item.name];
    for (const auto& run : item.runs)
      to.insert(to.end(), bytes.data + run.local * size_of(item.type),
                bytes.data + (run.local + run.length) * size_of(item.type));
  }
  ending.numbers.push_back(double(optimizer.steps()));
  if (state.loss_scale)
    ending.numbers.insert(ending.numbers.end(), {state.loss_scale->value, double(state.loss_scale->good_steps)});
}

struct Layout {
  const char* name;
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches = 2;
  const char* schedule = "1f1b";
  int zero = 0;
  std::size_t replicate = 1;
  enum class Place { device, host, file } place = Place::device;  ///< of state that is offloaded
  std::size_t hook_rank = 0;                                      ///< of PowerSgd; 0: no hook
  std::vector<std::size_t> layers = {};                           ///< of each stage; empty: even
};

inline ModelOptions options_of(const Layout& layout) {
  ModelOptions options;
  options.shard.stage = layout.zero;
  options.shard.replicate = layout.replicate;
  options.pipeline.schedule = schedule::choose(layout.schedule);
  options.pipeline.layers = layout.layers;
  if (layout.hook_rank != 0) options.data.hook = hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = int(layout.hook_rank)});
  if (layout.place == Layout::Place::host) options.shard.offload = Offload::host();
  if (layout.place == Layout::Place::file)
    options.shard.offload = Offload::file(
        (std::filesystem::temp_directory_path() / ("weft-test-" + std::to_string(::getpid()) + "-offloaded")).string());
  return options;
}

/// Runs steps [first, last) of a training; loads before and saves after on request. Results of rank i are in [i].
template <class Composition, class Grid, class Optimizer>
std::vector<Ending> run_steps(const Layout& layout, const typename Composition::Config& config, const std::string& folder,
                              int first, int last, bool loads, bool saves) {
  std::vector<Ending> endings(layout.world);
  const int code = runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
    Grid mesh(world, layout.degrees);
    Composition model(mesh, config, options_of(layout));
    Optimizer optimizer(model, {.learning_rate = 0.01, .clip = 1.0});
    Ending& ending = endings[std::size_t(world.rank())];
    if (loads) CHECK(checkpoint::load(folder, model, optimizer) == std::uint64_t(first));
    const auto data = mesh.comm(dp{});
    for (int step = first; step < last; ++step) {
      ending.losses.push_back(
          model.train_step(make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches)));
      optimizer.step();
    }
    take_state(ending, model, optimizer);
    if (saves) checkpoint::save(folder, model, optimizer, std::uint64_t(last));
  });
  INFO(layout.name);
  REQUIRE(code == 0);
  return endings;
}

/// Compares k steps, an end, and k more steps in a new program with 2k steps.
template <class Composition, class Grid, class Optimizer = optim::AdamW>
void check_resume(const Layout& layout, const typename Composition::Config& config) {
  INFO(layout.name);
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  constexpr int k = 2;
  const auto whole = run_steps<Composition, Grid, Optimizer>(layout, config, place, 0, 2 * k, false, false);
  run_steps<Composition, Grid, Optimizer>(layout, config, place, 0, k, false, true);
  const auto resumed = run_steps<Composition, Grid, Optimizer>(layout, config, place, k, 2 * k, true, false);
  for (std::size_t rank = 0; rank < layout.world; ++rank) {
    INFO("rank " << rank);
    CHECK(std::vector<double>(whole[rank].losses.begin() + k, whole[rank].losses.end()) == resumed[rank].losses);
    CHECK(whole[rank].numbers == resumed[rank].numbers);
    REQUIRE(whole[rank].state.size() == resumed[rank].state.size());
    for (const auto& [name, bytes] : whole[rank].state) {
      INFO(name);
      CHECK(resumed[rank].state.at(name) == bytes);
    }
  }
}

/// Each layout writes a checkpoint; the layouts `offsets` further in the list load it and write it again. The logical tensors
/// must be the same.
template <class Composition, class Grid, class Optimizer = optim::AdamW>
void check_reshard(const std::vector<Layout>& layouts, const typename Composition::Config& config,
                   const std::vector<std::size_t>& offsets) {
  for (std::size_t from = 0; from < layouts.size(); ++from) {
    TemporaryFolder folder;
    const std::string first = (folder.path / "first").string();
    run_steps<Composition, Grid, Optimizer>(layouts[from], config, first, 0, 2, false, true);
    const auto expected = tensors_of(first);
    REQUIRE(expected.size() > 20);
    for (const std::size_t offset : offsets) {
      const Layout& to = layouts[(from + offset) % layouts.size()];
      INFO(layouts[from].name << " -> " << to.name);
      const std::string second = (folder.path / ("second" + std::to_string(offset))).string();
      CHECK(runtime::run(runtime::RunOptions{.ranks = int(to.world)}, [&](World& world) {
              Grid mesh(world, to.degrees);
              Composition model(mesh, config, options_of(to));
              Optimizer optimizer(model, {.learning_rate = 0.01, .clip = 1.0});
              CHECK(checkpoint::load(first, model, optimizer) == 2);
              CHECK(optimizer.steps() == 2);
              checkpoint::save(second, model, optimizer, 2);
            }) == 0);
      CHECK(tensors_of(second) == expected);
    }
  }
}

}  // namespace weft_test
