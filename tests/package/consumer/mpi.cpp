// SPDX-License-Identifier: Apache-2.0
// The component mpi: the header of the backend is found, and MPI is linked.
#include <weft/comm/mpi.hpp>

int main() {
  int version = 0, subversion = 0;
  return MPI_Get_version(&version, &subversion) == MPI_SUCCESS && version >= 3 ? 0 : 1;
}
