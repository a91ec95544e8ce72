// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels in the library weft::compiled: float, bfloat16 and double on the default host execution space. All other kernels
// are compiled where they are used. src/kernels.cpp and src/kernels_double.cpp instantiate this list; other files declare it.

#include <weft/kernels/activation.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/cached_attention.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/move_rows.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/random.hpp>
#include <weft/kernels/rope.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/kernels/rows.hpp>

// nvcc does not support device lambdas in explicit instantiations.
#ifndef KOKKOS_ENABLE_CUDA
#define WEFT_KERNELS_OF(KIND, T)                                                                                                 \
  KIND template void gelu_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, T*);                            \
  KIND template void gelu_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, T*);                 \
  KIND template void swiglu_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, std::size_t,     \
                                                     const T*, std::size_t, T*);                                                 \
  KIND template void swiglu_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, std::size_t,    \
                                                      const T*, std::size_t, const T*, T*, std::size_t, T*, std::size_t);        \
  KIND template void attention_forward<T, detail::Host>(Device<detail::Host>&, const AttentionExtents&,                          \
                                                        const AttentionOperands<const T>&, StridedRows<T>, accumulate_t<T>*,     \
                                                        const AttentionMask&, const MaskArrays<accumulate_t<T>>&);               \
  KIND template void attention_backward<T, detail::Host>(                                                                        \
      Device<detail::Host>&, const AttentionExtents&, const AttentionOperands<const T>&, StridedRows<const T>,                   \
      StridedRows<const T>, const accumulate_t<T>*, const AttentionOperands<T>&, const AttentionMask&,                           \
      const MaskArrays<accumulate_t<T>>&);                                                                                       \
  KIND template void attention_block_forward<T, T, detail::Host>(                                                                \
      Device<detail::Host>&, const AttentionBlock&, const AttentionOperands<const T>&, StridedRows<T>, accumulate_t<T>*);        \
  KIND template void attention_block_backward<T, T, detail::Host>(                                                               \
      Device<detail::Host>&, const AttentionBlock&, const AttentionOperands<const T>&, StridedRows<const T>,                     \
      StridedRows<const T>, const accumulate_t<T>*, const AttentionOperands<T>&);                                                \
  KIND template void append_to_cache<T, detail::Host>(Device<detail::Host>&, const CacheExtents&, const CachePlace&, const T*,   \
                                                      std::size_t, const T*, std::size_t, T*, T*);                               \
  KIND template void cached_attention<T, detail::Host>(Device<detail::Host>&, const CacheExtents&, const CachePlace&, const T*,  \
                                                       std::size_t, const T*, const T*, T*);                                     \
  KIND template void cross_entropy_gradient<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t,       \
                                                             const T*, const accumulate_t<T>*, const accumulate_t<T>*,           \
                                                             const std::int32_t*, std::int64_t, const double*, T*, std::size_t); \
  KIND template void row_max<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*,            \
                                              accumulate_t<T>*);                                                                 \
  KIND template void softmax_sums<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*,       \
                                                   const accumulate_t<T>*, const std::int32_t*, std::int64_t, accumulate_t<T>*,  \
                                                   accumulate_t<T>*);                                                            \
  KIND template void cross_entropy_finish<T, detail::Host>(                                                                      \
      Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*, const accumulate_t<T>*, const accumulate_t<T>*,    \
      const accumulate_t<T>*, const std::int32_t*, std::int64_t, double*, T*);                                                   \
  KIND template void fill<T, detail::Host>(Device<detail::Host>&, std::size_t, T*, T);                                           \
  KIND template void add<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, T*);                           \
  KIND template void multiply<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, T*);                      \
  KIND template void scale<T, detail::Host>(Device<detail::Host>&, std::size_t, accumulate_t<T>, const T*, T*);                  \
  KIND template void axpy<T, accumulate_t<T>, detail::Host>(Device<detail::Host>&, std::size_t, accumulate_t<T>, const T*,       \
                                                            accumulate_t<T>*);                                                   \
  KIND template void accumulate<T, accumulate_t<T>, detail::Host>(Device<detail::Host>&, std::size_t, const T*,                  \
                                                                  accumulate_t<T>*);                                             \
  KIND template void add_row<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*, T*);          \
  KIND template void multiply_row<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*, T*);     \
  KIND template void column_sums<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, std::size_t,        \
                                                  accumulate_t<T>*, bool);                                                       \
  KIND template void embedding_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const std::int32_t*,    \
                                                        const T*, std::int64_t, std::size_t, T*);                                \
  KIND template void embedding_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const std::int32_t*,   \
                                                         const T*, std::int64_t, std::size_t, accumulate_t<T>*);                 \
  KIND template void matmul<T, T, detail::Host>(Device<detail::Host>&, Transpose, Transpose, std::size_t, std::size_t,           \
                                                std::size_t, const T*, std::size_t, const T*, std::size_t, T*, std::size_t,      \
                                                bool, const T*);                                                                 \
  KIND template void order_rows<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, std::size_t,      \
                                                 const T*, T*, bool);                                                            \
  KIND template void sum_parts<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, std::size_t,       \
                                                const T*, std::size_t, T*, std::size_t);                                         \
  KIND template void layer_norm_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*,    \
                                                         const T*, T*, accumulate_t<T>*, accumulate_t<T>*, double);              \
  KIND template void layer_norm_sum_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,          \
                                                             const T*, const T*, const T*, T*, T*, accumulate_t<T>*,             \
                                                             accumulate_t<T>*, double);                                          \
  KIND template void layer_norm_backward_input<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,       \
                                                                const T*, const accumulate_t<T>*, const accumulate_t<T>*,        \
                                                                const T*, T*, const T*);                                         \
  KIND template void layer_norm_backward_weight<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,      \
                                                                 const accumulate_t<T>*, const accumulate_t<T>*, const T*,       \
                                                                 accumulate_t<T>*, accumulate_t<T>*, bool);                      \
  KIND template void rms_norm_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*, T*,  \
                                                       accumulate_t<T>*, double);                                                \
  KIND template void rms_norm_sum_forward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*,  \
                                                           const T*, T*, T*, accumulate_t<T>*, double);                          \
  KIND template void rms_norm_backward_input<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,         \
                                                              const T*, const accumulate_t<T>*, const T*, T*, const T*);         \
  KIND template void rms_norm_backward_weight<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,        \
                                                               const accumulate_t<T>*, const T*, accumulate_t<T>*, bool);        \
  KIND template void squared_norm<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, double*);                       \
  KIND template void initialise_normal<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, T*, std::uint64_t,      \
                                                        std::size_t, std::size_t, std::size_t, double, double);                  \
  KIND template void initialise_uniform<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, T*, std::uint64_t,     \
                                                         std::size_t, std::size_t, std::size_t, double, double);                 \
  KIND template void initialise_truncated_normal<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, T*,           \
                                                                  std::uint64_t, std::size_t, std::size_t, std::size_t,          \
                                                                  const TruncatedNormal&);                                       \
  KIND template void initialise_constant<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, T*, std::uint64_t,    \
                                                          std::size_t, std::size_t, std::size_t, double);                        \
  KIND template void dropout<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, T*, double,             \
                                              std::uint64_t, std::size_t, std::size_t, std::size_t, const T*);                   \
  KIND template void rope<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*, std::size_t,  \
                                           T*, std::size_t, const std::int32_t*, const RopeFrequencies&, bool);                  \
  KIND template void gather_rows<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const std::int32_t*,          \
                                                  std::size_t, const T*, const accumulate_t<T>*, T*);                            \
  KIND template void sum_places<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const std::int32_t*,           \
                                                 std::size_t, const T*, const accumulate_t<T>*, T*);                             \
  KIND template void dot_places<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const std::int32_t*,           \
                                                 std::size_t, const T*, const T*, accumulate_t<T>*);                             \
  KIND template void subtract<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, T*);                      \
  KIND template void divide<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, T*);                        \
  KIND template void dot<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, const T*, double*);                      \
  KIND template void row_sums<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, accumulate_t<T>,       \
                                               accumulate_t<T>*);                                                                \
  KIND template void multiply_column<T, T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*,    \
                                                         T*);                                                                    \
  KIND template void divide_column<T, T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*, T*); \
  KIND template void spread_column<T, T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*,                \
                                                       accumulate_t<T>, T*);                                                     \
  KIND template void spread_row<T, T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, T*);              \
  KIND template void exp_sums<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*,           \
                                               const accumulate_t<T>*, accumulate_t<T>*);                                        \
  KIND template void softmax_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*, T*); \
  KIND template void log_softmax_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, const T*,  \
                                                           T*);

// Kernels of the types that sums are kept in.
#define WEFT_ACCUMULATOR_KERNELS_OF(KIND, T)                                                                                   \
  KIND template void cast<T, T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, T*);                               \
  KIND template void cast_rows<T, T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const T*, std::size_t, T*, \
                                                   std::size_t);                                                               \
  KIND template void add_rows<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, std::size_t,      \
                                               const T*, T*);                                                                  \
  KIND template void update_elements(Device<detail::Host>&, const UpdateArrays<T, T, 2>&, const AdamwElement<T>&,              \
                                     const GradientScale&);                                                                    \
  KIND template void update_elements(Device<detail::Host>&, const UpdateArrays<T, T, 1>&, const SgdElement<T>&,                \
                                     const GradientScale&);                                                                    \
  KIND template void route<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*, const T*,  \
                                            bool, T*, T*, std::int32_t*, T*);                                                  \
  KIND template void route_backward<T, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, std::size_t, const T*,   \
                                                     const T*, const std::int32_t*, const T*, const T*, bool, const T*,        \
                                                     const std::int32_t*, T, T*);                                              \
  KIND template void finish_log_sum_exp<T, detail::Host>(Device<detail::Host>&, std::size_t, const T*, T*);

#define WEFT_HALF_KERNELS(KIND)                                                                                                 \
  KIND template void cast<float, bfloat16, detail::Host>(Device<detail::Host>&, std::size_t, const float*, bfloat16*);          \
  KIND template void cast<bfloat16, float, detail::Host>(Device<detail::Host>&, std::size_t, const bfloat16*, float*);          \
  KIND template void matmul<bfloat16, float, detail::Host>(                                                                     \
      Device<detail::Host>&, Transpose, Transpose, std::size_t, std::size_t, std::size_t, const bfloat16*, std::size_t,         \
      const bfloat16*, std::size_t, float*, std::size_t, bool, const bfloat16*);                                                \
  KIND template void cast_rows<float, bfloat16, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const float*,    \
                                                              std::size_t, bfloat16*, std::size_t);                             \
  KIND template void cast_rows<bfloat16, float, detail::Host>(Device<detail::Host>&, std::size_t, std::size_t, const bfloat16*, \
                                                              std::size_t, float*, std::size_t);

namespace weft::kernels {
namespace detail {
using Host = Kokkos::DefaultHostExecutionSpace;
}
WEFT_KERNELS_OF(extern, float)
WEFT_KERNELS_OF(extern, bfloat16)
WEFT_KERNELS_OF(extern, double)
WEFT_ACCUMULATOR_KERNELS_OF(extern, float)
WEFT_ACCUMULATOR_KERNELS_OF(extern, double)
WEFT_HALF_KERNELS(extern)
}  // namespace weft::kernels
#endif
