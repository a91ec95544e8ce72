// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products. On hosts, float and bfloat16 use oneDNN, float16 does so after widening to float (also bfloat16 on a processor
// without products of it), and double uses weft's blocked kernel. Products of few rows, except by oneDNN's products of bfloat16,
// read the right matrix once in memory order. On a batch-invariant device (NumericsOptions) rows always take the blocked kernel,
// which adds the terms of a number in the order of k. Kokkos::Cuda uses cuBLASLt; other spaces use a plain loop.
//
//   kernels::matmul(device, Transpose::no, Transpose::yes, rows, outputs, inputs, x, inputs, weight, inputs, y, outputs, false,
//                   bias);

#include <cstddef>
#include <type_traits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_cublas.hpp>
#include <weft/kernels/detail/matmul_few_rows.hpp>
#include <weft/kernels/detail/matmul_half.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>
#include <weft/kernels/detail/matmul_onednn.hpp>
#include <weft/kernels/detail/matmul_tiles.hpp>

namespace weft::kernels {

enum class Transpose { no, yes };

namespace detail {
/// matmul in which each number is a sum in the order of k, whatever the number of rows and columns.
template <class T, class C, class Exec>
void matmul_by_rows(Device<Exec>& device, const MatmulShape& shape, const T* a, const T* b, C* c, const T* bias) {
  // The widened operands of bfloat16 are not the device's memory (WideNumbers), so a rehearsal counts the packed panels only.
  if constexpr (std::is_same_v<T, bfloat16>)
    if (device.rehearsal() != nullptr) return matmul_tiles<float>(device, shape, nullptr, nullptr, nullptr, nullptr);
  if constexpr (sizeof(T) == 2)
    matmul_half(device, shape, a, b, c, bias,
                [&](const MatmulShape& wide, const float* wide_a, const float* wide_b, float* wide_c, const float* wide_bias) {
                  matmul_tiles(device, wide, wide_a, wide_b, wide_c, wide_bias);
                });
  else matmul_tiles(device, shape, a, b, c, bias);
}
}  // namespace detail

/// c (+)= op(a) op(b) (+ bias): op(a) is [m, k], op(b) [k, n], c [m, n], bias [n] or null. All are row-major. The leading dims
/// lda, ldb, ldc are the distances in values between rows of the stored arrays; a transposed `a` is stored as [k, m]. C is T or
/// accumulate_t<T>; sums are in accumulate_t<T> and are rounded once. `accumulate` adds to c. An empty k gives zeros (or the
/// bias). The same bits in every run with the same shapes and number of threads; on a batch-invariant device a row's bits do not
/// depend on m either, unless `a` is transposed; on a device whose sums have fixed terms no number depends on m or n.
template <class T, class C, class Exec>
void matmul(Device<Exec>& device, Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k,
            const T* a, std::size_t lda, const T* b, std::size_t ldb, C* c, std::size_t ldc, bool accumulate = false,
            const T* bias = nullptr) {
  static_assert(std::is_same_v<C, T> || std::is_same_v<C, accumulate_t<T>>,
                "matmul's C must be T or accumulate_t<T>: sums are kept in accumulate_t<T>");
  if (m == 0 || n == 0) return;
  const detail::MatmulShape shape{.transpose_a = transpose_a == Transpose::yes,
                                  .transpose_b = transpose_b == Transpose::yes,
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .lda = lda,
                                  .ldb = ldb,
                                  .ldc = ldc,
                                  .accumulate = accumulate};
  if (Rehearsal* const notes = device.notes(); notes != nullptr) [[unlikely]]
    notes->product(double(m), double(n), double(k), double(detail::matmul_bytes<T, C>(shape)), data_type_of<T>);
  const weft::detail::TracedWhole whole(device.trace());
  // oneDNN multiplies pairs of bfloat16 if the processor does. A rehearsal does not depend on the processor.
  bool pairs = false;
  if constexpr (detail::on_host<Exec> && std::is_same_v<T, bfloat16>)
    pairs = device.rehearsal() != nullptr || detail::OneDnn::multiplies_bfloat16();
  if constexpr (detail::on_host<Exec>) {
    if ((device.sum_terms() != 0 || (device.batch_invariant() && !shape.transpose_a)) && k != 0)
      return detail::matmul_by_rows(device, shape, a, b, c, bias);
    if (m <= detail::few_rows && !shape.transpose_a && k != 0 && !pairs)
      return detail::matmul_few_rows(device, shape, a, b, c, bias);
  }
  if constexpr (detail::on_host<Exec> && sizeof(T) == 2) {
    if (k != 0 && !pairs)
      return detail::matmul_half(
          device, shape, a, b, c, bias,
          [&](const detail::MatmulShape& wide, const float* wide_a, const float* wide_b, float* wide_c, const float* wide_bias) {
            detail::matmul_onednn(device, wide, wide_a, wide_b, wide_c, wide_bias);
          });
  }
  if constexpr (detail::on_host<Exec> && !std::is_same_v<T, double> && !std::is_same_v<T, float16>) {
    if (k != 0) return detail::matmul_onednn(device, shape, a, b, c, bias);
  }
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
    if (k != 0 && device.rehearsal() == nullptr && detail::matmul_cublas(device, shape, a, b, c, bias)) return;
#endif
  if constexpr (detail::on_host<Exec> && std::is_same_v<T, double>) detail::matmul_tiles(device, shape, a, b, c, bias);
  else detail::matmul_loops(device, shape, a, b, c, bias);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
