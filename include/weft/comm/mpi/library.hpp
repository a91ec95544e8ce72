// SPDX-License-Identifier: Apache-2.0
#pragma once
// The MPI library's own header, without its C++ classes, which were withdrawn long ago and would need one more library.
//
// WEFT_MPI_INLINE marks the definitions in comm/mpi_impl.hpp, as WEFT_INLINE does elsewhere (core/inline.hpp): they are in the
// library weft::compiled_mpi, whose programs have WEFT_COMPILED_MPI set, or else in each program.

#include <weft/core/standard.hpp>

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
