// SPDX-License-Identifier: Apache-2.0
// The definitions of the MPI backend, for the library weft::compiled_mpi.
#include <weft/comm/mpi_impl.hpp>
