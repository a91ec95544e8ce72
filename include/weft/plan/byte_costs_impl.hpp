// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for plan/byte_costs.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <weft/plan/byte_costs.hpp>

namespace weft::plan {

WEFT_COLD WEFT_INLINE std::vector<double> byte_costs(const Machine& machine, const World& world,
                                                     const dtensor::DeviceMesh& grid) {
  const std::int32_t node[] = {std::int32_t(world.rank() / std::max(1, machine.ranks_per_node))};
  std::vector<double> costs;
  for (std::size_t axis = 0; axis < grid.axes(); ++axis) {
    const Communicator& comm = grid.comm(axis);
    const int ranks = comm.size();
    std::vector<std::int32_t> nodes(static_cast<std::size_t>(ranks));
    comm.all_gather(std::span(node), nodes);
    const auto here = int(std::count(nodes.begin(), nodes.end(), node[0]));
    const auto gather_s = [&](double bytes) { return machine.collective_s(comm::Operation::all_gather, bytes, ranks, here); };
    constexpr double bytes = 1e9;  // long enough that the latency, which is subtracted, leaves no rounding
    costs.push_back(ranks == 1 ? 0 : (gather_s(bytes) - gather_s(0)) / (bytes * double(ranks - 1) / ranks));
  }
  for (std::size_t axis = 0; axis < grid.axes(); ++axis) grid.comm(axis).all_reduce(costs, Reduction::max);
  return costs;
}

}  // namespace weft::plan
