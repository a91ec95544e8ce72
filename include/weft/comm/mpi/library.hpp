// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MPI library's own header, without its C++ classes, which were withdrawn long ago and would need one more library.
//
// WEFT_MPI_INLINE marks the definitions in comm/mpi_impl.hpp, as WEFT_INLINE does elsewhere (core/inline.hpp): they are in the
// library weft::compiled_mpi, whose programs have WEFT_COMPILED_MPI set, or else in each program.

#include <string>

#include <weft/core/standard.hpp>
#include <weft/core/text.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#ifdef WEFT_COMPILED_MPI
#define WEFT_MPI_INLINE
#else
#define WEFT_MPI_INLINE inline
#endif

namespace weft::comm::mpi {

/// The MPI library of the compilation, as "Open MPI 4.1.4".
inline std::string library_version() {
#if defined(OMPI_MAJOR_VERSION)
  return weft::detail::joined({"Open MPI ", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".", OMPI_RELEASE_VERSION});
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return weft::detail::joined({"MPI ", MPI_VERSION, ".", MPI_SUBVERSION});
#endif
}

}  // namespace weft::comm::mpi
