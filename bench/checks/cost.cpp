// SPDX-License-Identifier: Apache-2.0
// The cost of the checks in a training step, each separately and all together as a fraction of the step: the batch's hash,
// missing sums of gradients, touched parameters, and every 100 steps the parameters. Two thread ranks along dp, then along tp.
// Prints JSON.
//
//   bench_checks_cost [steps]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The median of many calls, in microseconds; ranks begin each call together.
template <class F>
double microseconds(const Communicator& everyone, int calls, F&& f) {
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    everyone.barrier();
    const auto started = std::chrono::steady_clock::now();
    f();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - started).count());
  }
  return median(times);
}

void measure(World& world, std::size_t tensor, int steps) {
  const models::GptConfig config{.layers = 6, .width = 384, .heads = 6, .sequence = 256};
  Mesh<dp, tp> mesh(world, Degrees{.tp = tensor});
  DataParallel<TensorParallel<models::Gpt>> model(mesh, config, {.numerics = {.compare_every = 0}});
  optim::AdamW optimizer(model, {.clip = 1.0});
  Batch batch;
  batch.sequences = 8;
  batch.length = config.sequence;
  batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    batch.tokens.push_back(std::int32_t(key_of(batch.first_sequence, i) % 256));
    batch.targets.push_back(std::int32_t(key_of(batch.first_sequence, i + 1) % 256));
  }
  std::vector<double> step_us;
  for (int step = -1; step < steps; ++step) {
    mesh.communicator().barrier();
    const auto started = std::chrono::steady_clock::now();
    model.train_step(batch);
    optimizer.step();
    mesh.communicator().barrier();
    if (step >= 0)
      step_us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - started).count());
  }
  const double step = median(step_us);

  using Exec = DefaultDevice::execution_space;
  const auto context = Context<Compute<Exec, float>>(world.device(), {})
                           .with<Invariant<dp>>(dp{}, mesh.comm(dp{}))
                           .with<Invariant<tp>>(tp{}, mesh.comm(tp{}));
  const Communicator& everyone = mesh.communicator();
  detail::Unit block{"block", {}};
  model.for_each_state([&](ParameterState& state) {
    if (block.parameters.size() < 12) block.parameters.push_back(&state);
  });
  const double units = double(config.layers + 2);
  const double batches = microseconds(everyone, 201, [&] { detail::require_batches(context, batch, true); });
  const double debts = units * microseconds(everyone, 201, [&] {
                         detail::agree_on_unreduced(mesh.comm(tp{}), world.device(), block, axis_bit<tp>);
                       });
  const double touched = microseconds(everyone, 201, [&] { detail::agree_on_touched(mesh.comm(dp{}), model.stages()); });
  const double parameters = microseconds(everyone, 21, [&] { model.require_equal_parameters(); }) / 100;
  if (world.rank() == 0)
    std::printf(
        "{\"dp\": %d, \"tp\": %zu, \"step_ms\": %.1f, \"batch_us\": %.1f, \"debts_us\": %.1f, \"touched_us\": %.1f, "
        "\"parameters_us\": %.1f, \"share_percent\": %.4f}\n",
        mesh.comm(dp{}).size(), tensor, step / 1e3, batches, debts, touched, parameters,
        100 * (batches + debts + touched + parameters) / step);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const Kokkos::ScopeGuard kokkos(argc, argv);
  for (const std::size_t tensor : {std::size_t(1), std::size_t(2)})
    if (const int code = run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1},
                                            [&](World& world) { measure(world, tensor, steps); }))
      return code;
  return 0;
}
