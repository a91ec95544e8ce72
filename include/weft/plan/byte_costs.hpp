// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs of bytes over the axes of a DeviceMesh on a machine, from which operations on DTensors choose what they move.
//
//   dtensor::DeviceMesh grid(mesh, dp{}, tp{});
//   grid.set_byte_costs(plan::byte_costs(plan::known_machine("h100"), world, grid));   // dp leaves the node, tp does not

#include <vector>

#include <weft/dtensor/device_mesh.hpp>
#include <weft/mesh/world.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

/// For each axis, the seconds that a rank needs for a byte that it receives in a long all-gather over the axis, by
/// Machine::collective_s; 0 for an axis of one rank. Ranks r of the world with equal r / machine.ranks_per_node share a node;
/// if the groups of an axis are placed differently on the nodes, the slowest one counts. Collective over the ranks of `grid`;
/// the same on all of them.
std::vector<double> byte_costs(const Machine& machine, const World& world, const dtensor::DeviceMesh& grid);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/byte_costs_impl.hpp>
#endif
