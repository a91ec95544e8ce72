// SPDX-License-Identifier: Apache-2.0
#pragma once
// weft_world_mpi of weft/c_interface/weft.h: the file that includes c_interface/define.hpp includes this header, too, if the
// program trains over MPI.

#include <weft/c_interface/define.hpp>
#include <weft/comm/mpi.hpp>

namespace weft::c_interface::detail {

inline const bool with_mpi = [] {
  communicator_of_fortran = [](int handle) { return comm::mpi::over(MPI_Comm_f2c(MPI_Fint(handle))); };
  return true;
}();

}  // namespace weft::c_interface::detail
