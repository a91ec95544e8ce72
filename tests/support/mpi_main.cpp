// SPDX-License-Identifier: Apache-2.0
// The main of test programs that run under mpirun. Rank 0 prints everything; other ranks print only failures. All ranks return
// the worst result. A world size other than the registered one fails: a test that silently ran on one rank would prove nothing.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include "support/watchdog.hpp"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (const char* expected = std::getenv("WEFT_TEST_RANKS"); expected != nullptr && std::atoi(expected) != size) {
    if (rank == 0) std::fprintf(stderr, "this test was registered for %s ranks and runs on %d\n", expected, size);
    MPI_Finalize();
    return 1;
  }
  int result = 0;
  {
    Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(2).set_disable_warnings(true));
    doctest::Context context(argc, argv);
    context.setOption("no-intro", true);
    context.setOption("no-colors", true);
    std::ostringstream quiet;
    if (rank != 0) context.setCout(&quiet);
    weft_test::Watchdog::instance().start(rank);
    result = context.run();
    if (rank != 0 && result != 0) std::cerr << "on rank " << rank << " of " << size << ":\n" << quiet.str() << std::flush;
    MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    weft_test::Watchdog::instance().stop();
  }
  MPI_Finalize();
  return result;
}
