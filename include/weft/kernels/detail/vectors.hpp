// SPDX-License-Identifier: Apache-2.0
#pragma once
// The vector support of the compiler: whether it has vector types (GCC and clang, not nvcc), the width of a register, and pragmas
// and attributes for loops over registers.
//
//   WEFT_UNROLL(4) for (int k = 0; k < 4; ++k) sum[k] += x[k];

#include <cstddef>

#include <weft/core/inline.hpp>

#if defined(__GNUC__) && !defined(__CUDACC__)
#define WEFT_COMPILER_VECTORS 1
#define WEFT_FLATTEN __attribute__((flatten))
#define WEFT_NOINLINE __attribute__((noinline))
#define WEFT_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define WEFT_UNROLL(n) WEFT_PRAGMA(clang loop unroll_count(n))
#else
#define WEFT_UNROLL(n) WEFT_PRAGMA(GCC unroll n)
#endif
#else
#define WEFT_COMPILER_VECTORS 0
#define WEFT_FLATTEN
#define WEFT_NOINLINE
#define WEFT_UNROLL(n)
#endif

namespace weft::kernels::detail {

/// The bytes of the widest register that the compiler may use.
inline constexpr std::size_t register_bytes = WEFT_REGISTER_BYTES;

}  // namespace weft::kernels::detail
