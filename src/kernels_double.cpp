// SPDX-License-Identifier: Apache-2.0
// The kernels for double.
#include <weft/kernels/compiled.hpp>

#ifndef KOKKOS_ENABLE_CUDA
namespace weft::kernels {
WEFT_KERNELS_OF(, double)
WEFT_ACCUMULATOR_KERNELS_OF(, double)
}  // namespace weft::kernels
#endif
