// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPU of a process before its ranks have met: the one with the process's local number, from the launcher's environment.
// Later, a backend with information about all ranks (comm::NcclOver) chooses again and refuses impossible choices. A rank
// computes on its thread's current GPU.

#include <weft/comm/launcher.hpp>
#include <weft/device/cuda/runtime.hpp>

namespace weft::runtime {

/// The number of this process among the processes that a launcher started on this computer.
struct LocalPlace {
  int rank = 0, ranks = 1;
};

/// Reads torchrun's, mpirun's or srun's environment; returns process 0 of 1 without one.
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

/// The first choice of a GPU. Throws UsageError if this computer has no GPU that the program can use.
inline int first_gpu(const GpuMachine& machine, const LocalPlace& place) {
  require_gpu(machine);
  return place.rank % machine.gpus;  // the backend checks later if ranks may share a GPU
}

}  // namespace weft::runtime
