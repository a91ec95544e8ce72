// SPDX-License-Identifier: Apache-2.0
#pragma once
// The computer that runs this program, measured in about a second.
//
//   const Machine here = plan::this_machine(world);   // collective: each rank uses its fraction of the cores, caches and memory

#include <string_view>

#include <weft/mesh/world.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

/// Measures products of five shapes, attention, an activation, a stream through memory, a short kernel and all-reduces, in float,
/// and large products and attention in bfloat16. All ranks measure at the same time, and count as ranks of one node. Each figure
/// is the median of three medians, since other load varies. Needs 48 MiB per rank. Collective; returns the mean, the same on
/// every rank. Throws UsageError in a rehearsal.
Machine this_machine(World& world);

namespace detail {
/// The machine of a name that a user gives, for nodes of `ranks` ranks. "this" is measured with as many thread ranks, but at most
/// Kokkos' threads and the computer's cores: more ranks than cores would slow down each other's memory. Other names are known
/// machines, or files if the program includes plan/machine_file.hpp.
Machine machine_of(std::string_view name, int ranks);
inline Machine (*machine_from_file)(std::string_view path) = nullptr;
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/this_machine_impl.hpp>
#endif
