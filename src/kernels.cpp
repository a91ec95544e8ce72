// SPDX-License-Identifier: Apache-2.0
// The kernels for float and bfloat16.
#include <weft/kernels/compiled.hpp>

#ifndef KOKKOS_ENABLE_CUDA
namespace weft::kernels {
WEFT_KERNELS_OF(, float)
WEFT_KERNELS_OF(, bfloat16)
WEFT_ACCUMULATOR_KERNELS_OF(, float)
WEFT_HALF_KERNELS()
}  // namespace weft::kernels
#endif
