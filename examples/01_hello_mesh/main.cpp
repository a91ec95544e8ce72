// SPDX-License-Identifier: Apache-2.0
// Eight ranks, as threads of this process, laid out over three axes. Each rank sums its number along every axis.
//   ./examples/run hello_mesh
#include <cstdio>
#include <vector>

#include <weft/weft.hpp>
using namespace weft;

int main(int argc, char** argv) {
  return run<comm::Threads>(only_run_options(argc, argv, {.ranks = 8}), [](World& world) {
    Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});  // dp is the rest of the world: 8 / (2 * 2) = 2
    const auto along = [&](auto axis) {
      std::vector<int> sum{world.rank()};
      mesh.comm(axis).all_reduce(sum);
      return sum[0];
    };
    const int sums[] = {along(dp{}), along(tp{}), along(pp{})};  // in the same order on every rank
    std::printf("rank %d: the ranks of its dp group sum to %2d, of its tp group to %2d, of its pp group to %2d\n", world.rank(),
                sums[0], sums[1], sums[2]);
  });
}
