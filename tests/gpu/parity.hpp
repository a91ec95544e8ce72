// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shared part of the parity programs over NCCL: in every layout, ranks give the losses and gradient norms of one rank.
// Schedule, stage of ZeRO and the method of attention over cp are run-time options, so one composition is compiled for all
// layouts of a program.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <weft/mesh/world.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "support/batches.hpp"
#include "support/degrees.hpp"

namespace gpu_parity {

using namespace weft;

/// dp is the rest of the world that `degrees` leaves.
struct Case {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches = 2;
  const char* schedule = "1f1b";
  int zero = 0;
  bool ulysses = false;
};

// Losses and norms of a few steps, one after the other.
template <class Model>
std::vector<double> numbers_of(Model& model, std::size_t data_rank, std::size_t data_ranks, std::size_t micro_batches) {
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::vector<double> numbers;
  for (std::uint64_t step = 0; step < 3; ++step) {
    numbers.push_back(model.train_step(weft_test::make_batch(step, data_rank, data_ranks, micro_batches)));
    numbers.push_back(optimizer.step().gradient_norm);
  }
  return numbers;
}

inline bool compare(World& world, const std::string& what, const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(got[i] - want[i]) / std::abs(want[i]);
    worst = d >= 0 ? std::max(worst, d) : INFINITY;
  }
  const bool good = worst < 1e-10;
  if (!good || world.rank() == 0)
    std::printf("%-6s %s, rank %d: differs by %.1e\n", good ? "ok" : "FAILED", what.c_str(), world.rank(), worst);
  return good;
}

/// Runs the `layouts` for a world of this size; returns the number of failures on this rank, or -1 if there is none for it.
template <class Composition, class Grid>
int failures_of(World& world, const typename Composition::Config& config, const std::vector<Case>& layouts) {
  std::vector<double> want;
  {
    SingleDevice<typename Composition::model_type> alone(world.device(), config);
    want = numbers_of(alone, 0, 1, 1);
  }
  int failures = 0, run = 0;
  for (const Case& layout : layouts) {
    if (layout.world != std::size_t(world.size())) continue;
    ++run;
    const Degrees& d = layout.degrees;
    Grid mesh(world, d);
    ModelOptions options;
    options.shard.stage = layout.zero;
    options.pipeline.schedule = schedule::choose(layout.schedule);
    options.context = layout.ulysses ? ContextMethod::ulysses : ContextMethod::ring;
    Composition model(mesh, config, options);
    const auto data = mesh.comm(dp{});
    std::string what = detail::joined({"dp(", data.size(), ") cp(", d.cp, ") tp(", d.tp, ") pp(", d.pp, ") ep(", d.ep, ") etp(",
                                       d.etp, "), ZeRO ", layout.zero, ", ", layout.schedule});
    if (d.cp > 1) what += layout.ulysses ? ", Ulysses" : ", ring";
    failures +=
        !compare(world, what, numbers_of(model, std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches), want);
  }
  if (run == 0) {
    std::printf("FAILED there are no layouts for %d ranks\n", world.size());
    return -1;
  }
  return failures;
}

}  // namespace gpu_parity
