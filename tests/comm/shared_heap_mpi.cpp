// SPDX-License-Identifier: Apache-2.0
// comm/shared_heap.cpp between processes of MPI.
#define WEFT_HEAPS_OVER_MPI
#include "comm/shared_heap.cpp"
