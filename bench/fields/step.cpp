// SPDX-License-Identifier: Apache-2.0
// Steps of the models of examples/fields in their sizes there, on two data-parallel ranks of one thread, with AdamW. Prints JSON:
// milliseconds of each step, processor time of a step over both ranks, and the losses. compare.py runs it.
//
//   bench_fields_step unet2|unet3|fno|mesh|potential|pinn|diffusion [steps [warm-up]]

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <weft/weft.hpp>

#include "../../examples/fields/diffusion.hpp"
#include "../../examples/fields/fno.hpp"
#include "../../examples/fields/mesh.hpp"
#include "../../examples/fields/pinn.hpp"
#include "../../examples/fields/potential.hpp"
#include "../../examples/fields/unet.hpp"
#include "../../tests/support/golden_numbers.hpp"
#include "../timed_steps.hpp"

namespace {

using namespace weft;
using namespace ::fields;
using weft_test::golden_values;

// Samples `first` to `first + count` of each model, as fields_models.py makes them.
template <std::size_t... Side>
Flow flow_of(std::size_t first, std::size_t count) {
  Flow batch;
  golden_values(batch[now].resize(count, {1 + sizeof...(Side), Side...}), 1000, first, (1 + sizeof...(Side)) * (Side * ...));
  golden_values(batch[later].resize(count, {1, Side...}), 1001, first, (Side * ...));
  return batch;
}
Meshes meshes_of(std::size_t first, std::size_t count) {
  constexpr std::size_t nodes = 96, neighbours = 6, edges = nodes * neighbours;
  Meshes batch;
  golden_values(batch[value].resize(count, {nodes, 1}), 1000, first, nodes);
  golden_values(batch[next_value].resize(count, {nodes, 1}), 1001, first, nodes);
  golden_values(batch[edge].resize(count, {edges, 3}), 1002, first, 3 * edges);
  auto from = batch[sender].resize(count, {edges}), into = batch[receiver].resize(count, {edges});
  for (std::size_t i = 0; i < count * edges; ++i) {
    const std::size_t before = i / edges * nodes, node = i % edges / neighbours;
    from[i] = std::int32_t(before + node), into[i] = std::int32_t(before + (node + 1 + i % neighbours) % nodes);
  }
  return batch;
}
Molecules molecules_of(std::size_t first, std::size_t count) {
  constexpr std::size_t atoms = 6, pairs = atoms * (atoms - 1);
  Molecules batch;
  golden_values(batch[position].resize(count, {atoms, 3}), 1000, first, 3 * atoms);
  for (float& number : batch[position].writable()) number *= 2;
  golden_values(batch[force].resize(count, {atoms, 3}), 1001, first, 3 * atoms);
  golden_values(batch[energy].resize(count, {1}), 1002, first, 1);
  auto of = batch[atom].resize(count, {pairs}), beside = batch[neighbour].resize(count, {pairs});
  for (std::size_t i = 0; i < count * pairs; ++i) {
    const std::size_t before = i / pairs * atoms, a = i % pairs / (atoms - 1), b = i % pairs % (atoms - 1);
    of[i] = std::int32_t(before + a), beside[i] = std::int32_t(before + b + (b >= a ? 1 : 0));
  }
  return batch;
}
Points points_of(std::size_t first, std::size_t count) {
  Points batch;
  golden_values(batch[inside].resize(count, {2}), 1000, first, 2);
  golden_values(batch[border].resize(count, {2}), 1001, first, 2);
  golden_values(batch[given].resize(count, {1}), 1002, first, 1);
  return batch;
}
Pictures pictures_of(std::size_t first, std::size_t count) {
  constexpr std::size_t side = 12;
  Pictures batch;
  golden_values(batch[picture].resize(count, {1, side, side}), 1000, first, side * side);
  golden_values(batch[remaining].resize(count, {1, 1, 1}), 1001, first, 1);
  golden_values(batch[spread].resize(count, {1, 1, 1}), 1002, first, 1);
  golden_values(batch[moment].resize(count, {time_features}), 1003, first, time_features);
  return batch;
}

template <class Model>
void measure(World& world, std::size_t samples, const auto& samples_of, int steps, int warm_up) {
  const Mesh<dp> mesh(world, {.dp = 2});
  DataParallel<Model> model(mesh, {});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .weight_decay = 0});
  const std::size_t here = samples / 2, first = here * std::size_t(mesh.rank(dp{}));
  auto batch = samples_of(first, here);
  batch.samples = here, batch.first_sample = first;
  weft_bench::time_steps(world, {"samples", samples}, steps, warm_up, [&](int step) {
    batch.step = std::uint64_t(step);
    const double loss = model.train_step(batch);
    optimizer.step();
    return loss;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "unet2";
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 40, warm_up = argc > 3 ? std::max(0, std::atoi(argv[3])) : 5;
  return run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    if (name == "unet2") measure<Unet<float, 2>>(world, 16, flow_of<32, 32>, steps, warm_up);
    else if (name == "unet3") measure<Unet<float, 3>>(world, 16, flow_of<16, 16, 16>, steps, warm_up);
    else if (name == "fno") measure<Fno<float>>(world, 16, flow_of<32, 32>, steps, warm_up);
    else if (name == "mesh") measure<MeshNet<float>>(world, 8, meshes_of, steps, warm_up);
    else if (name == "potential") measure<Potential<float>>(world, 32, molecules_of, steps, warm_up);
    else if (name == "pinn") measure<Pinn<float>>(world, 128, points_of, steps, warm_up);
    else if (name == "diffusion") measure<Diffusion<float>>(world, 32, pictures_of, steps, warm_up);
    else throw UsageError("bench_fields_step: no model " + std::string(name));
  });
}
