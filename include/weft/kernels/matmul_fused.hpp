// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products fused with a layer's operation directly before or after them. On Kokkos::Cuda the operation is an epilogue of
// cuBLASLt, which saves one pass over memory. Elsewhere, and if cuBLASLt has no kernel (double; a width that is not a multiple of
// 8), the product and the other kernel run one after the other.
//
//   kernels::matmul_gelu(device, Transpose::no, tokens, outputs, inputs, x, weight, bias, before, after);

#include <cstddef>

#include <weft/kernels/activation.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>

namespace weft::kernels {

namespace detail {
/// In a rehearsal, notes a product by a device's library, if the library has epilogues for T. `more`: the bytes of the epilogue.
template <class T, class Exec>
bool rehearsed_epilogue(Device<Exec>& device, std::size_t m, std::size_t n, std::size_t k, std::size_t more) {
  if constexpr (!on_host<Exec> && sizeof(T) <= 4)
    if (Rehearsal* const notes = device.rehearsal(); notes != nullptr && m * n * k != 0) [[unlikely]] {
      const std::size_t bytes = ((m + n) * k + m * n) * sizeof(T) + more;
      notes->product(double(m), double(n), double(k), double(bytes), data_type_of<T>);
      const weft::detail::TracedWhole whole(device.trace());
      notes->launched({"product", bytes});
      return true;
    }
  return false;
}
}  // namespace detail

/// before [m, n] = a op(b) + bias and after [m, n] = gelu(before), in its tanh form; a [m, k], op(b) [k, n], bias [n], all
/// contiguous. Numerics: an epilogue applies GELU to the sum before it is rounded to T.
template <class T, class Exec>
void matmul_gelu(Device<Exec>& device, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
                 const T* bias, T* before, T* after) {
  const std::size_t ldb = transpose_b == Transpose::yes ? k : n;
  if (detail::rehearsed_epilogue<T>(device, m, n, k, m * n * sizeof(T))) return;
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
    if (m != 0 && n != 0 && k != 0 && bias != nullptr &&
        detail::matmul_gelu_cublas(device, transpose_b == Transpose::yes, m, n, k, a, k, b, ldb, bias, before, after))
      return;
#endif
  matmul<T, T>(device, Transpose::no, transpose_b, m, n, k, a, k, b, ldb, before, n, false, bias);
  gelu_forward<T>(device, m * n, before, after);
}

/// c [m, n] = (a op(b)) gelu'(before), elementwise: the gradient before a GELU whose input was `before` [m, n].
template <class T, class Exec>
void matmul_gelu_backward(Device<Exec>& device, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, const T* a,
                          const T* b, const T* before, T* c) {
  const std::size_t ldb = transpose_b == Transpose::yes ? k : n;
  if (detail::rehearsed_epilogue<T>(device, m, n, k, m * n * sizeof(T))) return;
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
    if (m != 0 && n != 0 && k != 0 &&
        detail::matmul_gelu_backward_cublas(device, transpose_b == Transpose::yes, m, n, k, a, k, b, ldb, before, c))
      return;
#endif
  matmul<T, T>(device, Transpose::no, transpose_b, m, n, k, a, k, b, ldb, c, n);
  gelu_backward<T>(device, m * n, before, c, c);
}

/// The factor whose rows are summed.
enum class Factor { left, right };

/// c [m, n] (+)= aᵀ b, and the sums over the rows of a into sums [m], or of b into sums [n]: the gradients of a weight and its
/// bias. a [k, m], b [k, n].
template <Factor Summed, class T, class Exec>
void matmul_sums(Device<Exec>& device, std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b, accumulate_t<T>* c,
                 bool accumulate, accumulate_t<T>* sums) {
  constexpr bool right = Summed == Factor::right;
  const std::size_t gradient = m * n * ((accumulate ? 2 : 1) * sizeof(*c) - sizeof(T));  // additional bytes compared with type T
  if (detail::rehearsed_epilogue<T>(device, m, n, k, gradient + (right ? n : m) * sizeof(*sums))) return;
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
    if (m != 0 && n != 0 && k != 0 && device.rehearsal() == nullptr &&
        detail::matmul_sums_cublas(device, right, m, n, k, a, b, c, accumulate, sums))
      return;
#endif
  matmul<T, accumulate_t<T>>(device, Transpose::yes, Transpose::no, m, n, k, a, m, b, n, c, n, accumulate);
  column_sums<T>(device, k, right ? n : m, right ? b : a, right ? n : m, sums, false);
}

}  // namespace weft::kernels
