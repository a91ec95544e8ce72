// SPDX-License-Identifier: Apache-2.0
#pragma once
// The machine that this program runs on, measured in about a second.
//
//   const Machine here = plan::this_machine(world);   // collective: every rank has a part of the cores, caches and memory

#include <string_view>

#include <weft/core/inline.hpp>
#include <weft/mesh/world.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

/// Measures products of five shapes, attention, an activation, a stream through memory, a short kernel and sums over the ranks,
/// in float, and large products and attention in bfloat16, while all ranks do the same, which are taken for those of one node.
/// Each is the middle one of three medians, as other work comes and goes. 48 MiB for each rank. Collective; the same figures on
/// every rank, their mean. Throws UsageError in a rehearsal.
Machine this_machine(World& world);

namespace detail {
/// A machine of a name that people give, for nodes of so many ranks: "this", measured by as many thread ranks, but not more than
/// Kokkos has threads and the machine has cores, as memory and what cores share are slower for all of them; or a known one, or a
/// file's if the program has included plan/machine_file.hpp.
Machine machine_of(std::string_view name, int ranks);
inline Machine (*machine_from_file)(std::string_view path) = nullptr;
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/this_machine_impl.hpp>
#endif
