// SPDX-License-Identifier: Apache-2.0
// Tensors over four ranks (2 x 2) whose placements are chosen at run time: a table redistributed, a product that moves an
// operand, and a small network that trains.
//   ./examples/run dtensor
#include <cstdio>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/dtensor/operations.hpp>
#include <weft/dtensor/parameters.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>
using namespace weft;
using dtensor::partial, dtensor::replicate, dtensor::shard;
using Local = Tensor<float, DefaultDevice::execution_space>;

void redistribute_a_table(World& world, const dtensor::DeviceMesh& grid) {
  Local table(world.device(), {5, 3});
  std::vector<float> numbers(15);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  copy_from_host(table, std::span<const float>(numbers));

  auto rows = distribute_tensor(grid, table, {shard(0), replicate()});  // 5 rows: 3 on the first dp rank, 2 on the second
  auto both = rows.redistribute({shard(0), shard(0)});                  // then 2 + 1 and 1 + 1
  auto columns = both.redistribute({replicate(), shard(1)});
  auto terms = columns.redistribute({replicate(), partial()});
  const bool same = copy_to_host(terms.full_tensor()) == numbers;
  if (!same && !world.communicator().rehearsed()) throw Error("the table has changed");  // tensors of a rehearsal read as zeros
  const auto show = [&](const char* name, const DTensor<float>& x) {
    return std::string(name) + " " + dtensor::text(x.placements()) + " " + x.to_local().shape().text();
  };
  std::printf("rank %d: %s, %s, %s\n", world.rank(), show("rows", rows).c_str(), show("both", both).c_str(),
              show("columns", columns).c_str());
}

// Products whose operands are placed well need no message; otherwise the cheaper operand moves.
void explain_products(World& world, const dtensor::DeviceMesh& grid) {
  auto& device = world.device();
  const auto x = dtensor::normal<float>(device, grid, {64, 16}, {shard(0), replicate()}, 1);
  const auto up = dtensor::normal<float>(device, grid, {16, 32}, {replicate(), shard(1)}, 2);
  const auto down = dtensor::normal<float>(device, grid, {32, 16}, {replicate(), shard(0)}, 3);
  const auto cut = dtensor::normal<float>(device, grid, {16, 32}, {shard(1), shard(1)}, 4);
  const std::string lines = dtensor::explain(grid, [&] {
    const auto y = matmul(relu(matmul(x, up)), down);  // Megatron's two products: a sum of terms over tp is left
    relu(y);                                           // is not linear, so the terms are added first
    matmul(x, cut);                                    // both operands are cut over dp: the smaller one moves
  });
  if (world.rank() == 0) std::fputs(lines.c_str(), stdout);
}

// Two layers on 96 points of two classes: inside a circle or not. The batch is cut over dp, the hidden features over tp.
void train_a_network(World& world, const dtensor::DeviceMesh& grid) {
  auto& device = world.device();
  const auto points = dtensor::uniform<float>(device, grid, {96, 2}, {shard(0), replicate()}, 5, -1, 1);
  const auto places = copy_to_host(points.full_tensor());
  Tensor<std::int32_t, DefaultDevice::execution_space> inside(device, {96});
  std::vector<std::int32_t> numbers(96);
  for (std::size_t i = 0; i < 96; ++i) numbers[i] = places[2 * i] * places[2 * i] + places[2 * i + 1] * places[2 * i + 1] < 0.5f;
  copy_from_host(inside, std::span<const std::int32_t>(numbers));
  const auto labels = distribute_tensor(grid, inside, {shard(0), replicate()}, dtensor::Source::every_rank);

  const dtensor::Placements whole{replicate(), replicate()};
  const auto drawn = [&](const Shape& shape, std::uint64_t seed) {
    return dtensor::normal<float>(device, grid, shape, whole, seed).to_local();
  };
  const std::vector<std::pair<std::string, Local>> initial = {
      {"up", drawn({2, 32}, 6)}, {"bias", drawn({32}, 7)}, {"down", drawn({32, 2}, 8)}};
  dtensor::Parameters<float> parameters(
      world.communicator(),
      dtensor::distribute_parameters(
          grid, initial,
          {{"up", {replicate(), shard(1)}}, {"bias", {replicate(), shard(0)}}, {"down", {replicate(), shard(0)}}}));
  optim::AdamW optimizer(parameters, {.learning_rate = 0.02});
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const auto hidden = gelu(matmul(points, parameters["up"]) + parameters["bias"]);  // [96 / dp, 32 / tp]
    const auto loss = cross_entropy(matmul(hidden, parameters["down"]), labels);
    loss.backward();
    optimizer.step();
    last = copy_to_host(loss.full_tensor())[0];
    if (step == 0) first = last;
  }
  if (world.rank() == 0) std::printf("loss %.3f, after 100 steps %.3f\n", double(first), double(last));
}

int main(int argc, char** argv) {
  return run<comm::Threads>(only_run_options(argc, argv, {.ranks = 4}), [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const dtensor::DeviceMesh grid(mesh, dp{}, tp{});  // placements are given in this order
    redistribute_a_table(world, grid);
    explain_products(world, grid);
    train_a_network(world, grid);
  });
}
