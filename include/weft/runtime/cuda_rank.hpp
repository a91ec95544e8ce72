// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPU of a process before its ranks have met: the one with the process's local number, from the launcher's environment. A
// backend that knows all ranks (comm::NcclOver) chooses again for each and refuses impossible choices; a rank then computes on
// its thread's current GPU.

#include <cstdlib>

#include <weft/comm/launcher.hpp>
#include <weft/device/cuda/runtime.hpp>

namespace weft::runtime {

/// The number of this process among the processes that a launcher started on this machine.
struct LocalPlace {
  int rank = 0, ranks = 1;
};

/// From torchrun's, mpirun's or srun's environment; process 0 of 1 without one.
inline LocalPlace local_place_from_environment() {
  struct Names {
    const char *rank, *ranks;
  };
  constexpr Names known[] = {{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                             {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                             {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
  constexpr int most = 1 << 16;
  for (const Names& names : known) {
    if (!detail::is_set(names.rank)) continue;
    LocalPlace place{detail::whole_number(names.rank, 0, most), 1};
    place.ranks = detail::is_set(names.ranks) ? detail::whole_number(names.ranks, 1, most) : place.rank + 1;
    return place;
  }
  return {};
}

/// The first choice of a GPU. Throws UsageError if this machine has no GPU that the program can use.
inline int first_gpu(const GpuMachine& machine, const LocalPlace& place) {
  require_gpu(machine);
  return place.rank % machine.gpus;  // whether ranks may share a GPU is asked when they have met
}

}  // namespace weft::runtime
