// SPDX-License-Identifier: Apache-2.0
// A table over four ranks (2 x 2), with placements chosen at run time: by rows, by columns, as terms of a sum, and whole again.
//   ./examples/run dtensor
#include <cstdio>
#include <string>
#include <vector>

#include <weft/dtensor/dtensor.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>
using namespace weft;
using dtensor::partial, dtensor::replicate, dtensor::shard;

int main(int argc, char** argv) {
  return run<comm::Threads>(only_run_options(argc, argv, {.ranks = 4}), [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const dtensor::DeviceMesh grid(mesh, dp{}, tp{});  // placements are given in this order
    Tensor<float, DefaultDevice::execution_space> table(world.device(), {5, 3});
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
  });
}
