// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products on Kokkos::Cuda by cuBLASLt. Available only if Kokkos was built for CUDA.

#include <Kokkos_Core.hpp>

#ifdef KOKKOS_ENABLE_CUDA

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/kernels/cuda/blas.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>

namespace weft::kernels {

namespace detail {

template <class T>
inline constexpr cudaDataType_t cuda_type_of = std::is_same_v<T, bfloat16>  ? CUDA_R_16BF
                                               : std::is_same_v<T, float16> ? CUDA_R_16F
                                               : std::is_same_v<T, double>  ? CUDA_R_64F
                                                                            : CUDA_R_32F;

/// cuBLASLt of one device, and whether float products may round factors to TensorFloat-32.
struct DeviceBlas {
  gpu::Blas blas;
  bool tf32 = false;
};

// c[row, column] += bias[column], for products that have no epilogue.
template <class T, class C>
struct AddBiasOne {
  C* c;
  const T* bias;
  std::size_t n, ldc;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    C& to = c[i / n * ldc + i % n];
    to = C(accumulate_t<T>(to) + accumulate_t<T>(bias[i % n]));
  }
};

/// Returns false, and does nothing, if cuBLASLt has no algorithm.
template <class T, class C>
bool matmul_cublas(Device<Kokkos::Cuda>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  DeviceBlas& own = device.template cache<DeviceBlas>();
  const cudaStream_t stream = device.exec().cuda_stream();
  gpu::Product product{.transpose_a = s.transpose_a,
                       .transpose_b = s.transpose_b,
                       .m = s.m,
                       .n = s.n,
                       .k = s.k,
                       .lda = s.lda,
                       .ldb = s.ldb,
                       .ldc = s.ldc,
                       .accumulate = s.accumulate,
                       .type = cuda_type_of<T>,
                       .c_type = cuda_type_of<C>,
                       .tf32 = own.tf32};
  if (bias != nullptr && std::is_same_v<T, C>) {
    product.epilogue = gpu::Epilogue::bias;
    if (own.blas.run(product, a, b, c, stream, bias)) return true;
    product.epilogue = gpu::Epilogue::none;
  }
  if (!own.blas.run(product, a, b, c, stream)) return false;
  if (bias != nullptr)
    for_each(device, {"product", (2 * s.m + 1) * s.n * sizeof(C)}, s.m * s.n, AddBiasOne<T, C>{c, bias, s.n, s.ldc});
  return true;
}

// Products with an operation before or after them (kernels/matmul_fused.hpp). False if cuBLASLt has no algorithm.
template <class T>
gpu::Product fused_product(const DeviceBlas& own, std::size_t m, std::size_t n, std::size_t k, std::size_t lda, std::size_t ldb,
                           gpu::Epilogue epilogue) {
  gpu::Product product{.m = m,
                       .n = n,
                       .k = k,
                       .lda = lda,
                       .ldb = ldb,
                       .ldc = n,
                       .type = cuda_type_of<T>,
                       .c_type = cuda_type_of<T>,
                       .tf32 = own.tf32,
                       .epilogue = epilogue};
  if (epilogue == gpu::Epilogue::gelu_aux_bias || epilogue == gpu::Epilogue::gelu_backward) product.ld_aux = n;
  return product;
}
template <class T>
bool matmul_gelu_cublas(Device<Kokkos::Cuda>& device, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, const T* a,
                        std::size_t lda, const T* b, std::size_t ldb, const T* bias, T* before, T* after) {
  if (std::is_same_v<T, double> || n % 8 != 0) return false;  // rows of `before` need a multiple of 8
  DeviceBlas& own = device.template cache<DeviceBlas>();
  gpu::Product product = fused_product<T>(own, m, n, k, lda, ldb, gpu::Epilogue::gelu_aux_bias);
  product.transpose_b = transpose_b;
  return own.blas.run(product, a, b, after, device.exec().cuda_stream(), bias, before);
}
template <class T>
bool matmul_gelu_backward_cublas(Device<Kokkos::Cuda>& device, bool transpose_b, std::size_t m, std::size_t n, std::size_t k,
                                 const T* a, std::size_t lda, const T* b, std::size_t ldb, const T* before, T* c) {
  if (std::is_same_v<T, double> || n % 8 != 0) return false;  // rows of `before` need a multiple of 8
  DeviceBlas& own = device.template cache<DeviceBlas>();
  gpu::Product product = fused_product<T>(own, m, n, k, lda, ldb, gpu::Epilogue::gelu_backward);
  product.transpose_b = transpose_b;
  return own.blas.run(product, a, b, c, device.exec().cuda_stream(), nullptr, before);
}
template <class T>
bool matmul_sums_cublas(Device<Kokkos::Cuda>& device, bool of_b, std::size_t m, std::size_t n, std::size_t k, const T* a,
                        const T* b, accumulate_t<T>* c, bool accumulate, accumulate_t<T>* sums) {
  if (std::is_same_v<T, double>) return false;
  DeviceBlas& own = device.template cache<DeviceBlas>();
  gpu::Product product = fused_product<T>(own, m, n, k, m, n, of_b ? gpu::Epilogue::sums_of_b : gpu::Epilogue::sums_of_a);
  product.transpose_a = true;
  product.accumulate = accumulate;
  product.c_type = cuda_type_of<accumulate_t<T>>;
  return own.blas.run(product, a, b, c, device.exec().cuda_stream(), sums);
}

}  // namespace detail

/// Allows, or forbids, TensorFloat-32 in later float products of this device: 10 bits of precision instead of 23, at many times
/// the speed. Off by default; other types are not affected.
inline void allow_tf32(Device<Kokkos::Cuda>& device, bool allow = true) {
  device.template cache<detail::DeviceBlas>().tf32 = allow;
}

/// Allows, or forbids, timing: each later product of a new shape on this device times cuBLASLt's first 8 algorithms once, and
/// keeps the fastest. Off by default, since times are noisy: another run may choose other algorithms and give other bits. Two
/// ranks that compute the same product may also differ, so parameters that tp does not shard may drift apart if their gradients
/// are products. While a product is timed, memory for one more result is allocated. Recorded steps are not timed.
inline void time_products(Device<Kokkos::Cuda>& device, bool allow = true) {
  gpu::Blas::Allocate allocate;
  if (allow) allocate = [&device](std::size_t bytes) { return device.allocate(bytes); };
  device.template cache<detail::DeviceBlas>().blas.time_algorithms(std::move(allocate));
}

}  // namespace weft::kernels

#endif
