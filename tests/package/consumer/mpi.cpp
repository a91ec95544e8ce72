// SPDX-License-Identifier: Apache-2.0
// The component mpi: the header of the backend is found, and MPI and the backend are linked.
#include <weft/comm/mpi.hpp>

int main() {
  int version = 0, subversion = 0;
  if (MPI_Get_version(&version, &subversion) != MPI_SUCCESS || version < 3) return 1;
  return weft::comm::Mpi::detected() ? 2 : 0;  // no launcher started it
}
