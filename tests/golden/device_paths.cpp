// SPDX-License-Identifier: Apache-2.0
// PyTorch's numbers again, by the loops, teams, copies and fallbacks for GPUs: this program declares its space's memory not to be
// the host's, on one rank (kernels/device_paths.cpp tests the kernels one by one).
#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#define WEFT_GOLDEN_ONE_RANK
#include "golden.cpp"
