// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products by cuBLASLt on one stream. Finding an algorithm takes longer than a small product. So one object caches the
// algorithms by shape, types and alignment, with its handle and workspace, and a repeated training step allocates nothing. It
// takes only pointers and strides; kernels/matmul.hpp calls it for Kokkos::Cuda.
//
//   gpu::Blas blas;
//   blas.run({.transpose_b = true, .m = tokens, .n = out, .k = in, .lda = in, .ldb = in, .ldc = out, .type = CUDA_R_16BF,
//             .c_type = CUDA_R_16BF}, x, weight, y, stream);

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include <weft/core/checked.hpp>
#include <weft/core/text.hpp>
#include <weft/device/cuda/shared_work.hpp>
#include <weft/kernels/cuda/fastest.hpp>

namespace weft::gpu {

/// Throws CudaError unless `status` is success; `what` names the call.
inline void blas_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw_error<CudaError>({"cuda: ", what, " failed: ", cublasLtGetStatusName(status), ", ", cublasLtGetStatusString(status)});
}
inline void blas_report(cublasStatus_t status, const char* what) noexcept {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    std::fprintf(stderr, "weft: cuda: %s failed: %s\n", what, cublasLtGetStatusName(status));
}

/// An operation that follows a product in the same kernel. GELU is its tanh form.
enum class Epilogue : std::uint8_t {
  none,
  bias,           ///< + bias [n]
  gelu_aux_bias,  ///< gelu(x + bias); stores x + bias in aux [m, n] for the backward
  gelu_backward,  ///< x * gelu'(aux): the gradient before a GELU whose input is aux
  /// Overwrites bias [m] with the sums over k of op(a): the gradient of a bias together with that of its weight.
  sums_of_a,
  sums_of_b,  ///< the same sums of op(b), into bias [n]
};

/// c [m, n] (+)= op(a) op(b), then the epilogue. Row-major, with the strides of the rows as stored.
struct Product {
  bool transpose_a = false, transpose_b = false;
  std::size_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  bool accumulate = false;
  cudaDataType_t type = CUDA_R_32F, c_type = CUDA_R_32F;
  bool tf32 = false;  ///< float products in TensorFloat-32: 10 bits of precision, sums in float
  Epilogue epilogue = Epilogue::none;
  std::size_t ld_aux = 0;
  bool operator==(const Product&) const = default;
};

namespace detail {

/// The alignment of an address in bytes, at most 256: the choice of an algorithm depends on it.
inline std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return bits == 0 ? 256u
                   : static_cast<std::uint32_t>(std::uint64_t(1) << (std::countr_zero(bits) < 8 ? std::countr_zero(bits) : 8));
}

struct ProductKey {
  Product product;
  std::uint32_t a, b, c, bias, aux;  // alignments
  bool operator==(const ProductKey&) const = default;
};

struct ProductHash {
  std::size_t operator()(const ProductKey& key) const {
    const Product& p = key.product;
    std::size_t hash = std::size_t(p.transpose_a) | std::size_t(p.transpose_b) << 1 | std::size_t(p.accumulate) << 2 |
                       std::size_t(p.tf32) << 3 | std::size_t(p.epilogue) << 4 | std::size_t(p.type) << 8 |
                       std::size_t(p.c_type) << 16;
    for (const std::size_t n : {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.ld_aux, std::size_t(key.a), std::size_t(key.b),
                                std::size_t(key.c), std::size_t(key.bias), std::size_t(key.aux)})
      hash = (hash ^ n) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
  }
};

/// A matrix in cuBLASLt's column-major order: [rows, columns] in weft is its transpose in cuBLASLt.
class MatrixLayout {
 public:
  MatrixLayout(cudaDataType_t type, std::size_t rows, std::size_t columns, std::size_t ld) {
    blas_check(
        cublasLtMatrixLayoutCreate(&layout_, type, columns, rows, weft::detail::narrow<std::int64_t>(ld, "a leading dimension")),
        "cublasLtMatrixLayoutCreate");
  }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  ~MatrixLayout() { blas_report(cublasLtMatrixLayoutDestroy(layout_), "cublasLtMatrixLayoutDestroy"); }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Preference {
 public:
  Preference() { blas_check(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate"); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { blas_report(cublasLtMatmulPreferenceDestroy(preference_), "cublasLtMatmulPreferenceDestroy"); }
  template <class V>
  void set(cublasLtMatmulPreferenceAttributes_t name, const V& value) {
    blas_check(cublasLtMatmulPreferenceSetAttribute(preference_, name, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// The descriptors of one product. Row-major c = op(a) op(b) is column-major cᵀ = op(b)ᵀ op(a)ᵀ: b comes first.
class ProductPlan {
 public:
  explicit ProductPlan(const Product& p)
      : a(p.type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda),
        b(p.type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb),
        c(p.c_type, p.m, p.n, p.ldc) {
    const bool wide = p.type == CUDA_R_64F;
    const cublasComputeType_t compute = wide                             ? CUBLAS_COMPUTE_64F
                                        : p.tf32 && p.type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                         : CUBLAS_COMPUTE_32F;
    blas_check(cublasLtMatmulDescCreate(&operation, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
    try {
      set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
      if (p.epilogue == Epilogue::none) return;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.epilogue));
      if (p.epilogue != Epilogue::gelu_backward) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.c_type);
      if (p.ld_aux != 0)
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, weft::detail::narrow<std::int64_t>(p.ld_aux, "a leading dimension"));
    } catch (...) {
      blas_report(cublasLtMatmulDescDestroy(operation), "cublasLtMatmulDescDestroy");
      throw;
    }
  }
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;
  ~ProductPlan() { blas_report(cublasLtMatmulDescDestroy(operation), "cublasLtMatmulDescDestroy"); }

  template <class V>
  void set(cublasLtMatmulDescAttributes_t name, const V& value) {
    blas_check(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  static cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
    switch (epilogue) {
      case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
      case Epilogue::gelu_aux_bias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
      case Epilogue::gelu_backward: return CUBLASLT_EPILOGUE_DGELU;
      case Epilogue::sums_of_a: return CUBLASLT_EPILOGUE_BGRADB;  // cuBLASLt's first operand is b
      case Epilogue::sums_of_b: return CUBLASLT_EPILOGUE_BGRADA;
      default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
  }

  cublasLtMatmulDesc_t operation = nullptr;
  MatrixLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  bool found = false;  ///< false: this cuBLASLt has no algorithm for the product
};

}  // namespace detail

/// The handle, the workspace and the cached algorithms, for products on one stream at a time. Not thread-safe.
class Blas {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t(32) << 20;  ///< NVIDIA's recommendation for Hopper

  /// Uses the current device. Throws CudaError.
  Blas() {
    blas_check(cublasLtCreate(&handle_), "cublasLtCreate");
    if (const cudaError_t status = cudaMalloc(&workspace_, workspace_bytes); status != cudaSuccess) {
      blas_report(cublasLtDestroy(handle_), "cublasLtDestroy");
      cuda_check(status, "cudaMalloc of cuBLASLt's workspace");
    }
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    plans_.clear();
    gpu::free_memory(workspace_);
    blas_report(cublasLtDestroy(handle_), "cublasLtDestroy");
  }

  /// GPU memory at a multiple of 256 bytes, for work on the stream of a product. It may be reused after that work.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  /// From now on each new product uses the fastest of cuBLASLt's first 8 algorithms, timed on first use; timed results are
  /// written to memory from `allocate`. Null, the default: cuBLASLt's first algorithm. Times are noisy, so the bits may then
  /// differ between runs, and between ranks that compute the same.
  void time_algorithms(Allocate allocate) { allocate_ = std::move(allocate); }

  /// Runs the product on `stream`. Returns false, and does nothing, if cuBLASLt has no algorithm for it (for example, if the
  /// types have no such epilogue). The epilogue reads or writes bias and aux, both in c's type. Throws CudaError. Unless
  /// algorithms are timed, the same bits in every run with the same shapes and alignments on one kind of GPU: algorithms that add
  /// with atomics are excluded.
  bool run(const Product& product, const void* a, const void* b, void* c, cudaStream_t stream, const void* bias = nullptr,
           const void* aux = nullptr) {
    const Operands operands{a, b, c, bias, aux};
    const detail::ProductPlan& plan = find({product, detail::alignment_of(a), detail::alignment_of(b), detail::alignment_of(c),
                                            detail::alignment_of(bias), detail::alignment_of(aux)},
                                           operands, stream);
    if (!plan.found) return false;
    blas_check(start(plan, plan.algorithm, product, operands, c, stream), "cublasLtMatmul");
    return true;
  }

  std::size_t plans() const { return plans_.size(); }

 private:
  static constexpr std::size_t most_plans = 4096;  // decoding has a new shape at each step

  struct Operands {
    const void *a, *b;
    void* c;
    const void *bias, *aux;
  };
  static constexpr int most_candidates = 8;

  const detail::ProductPlan& find(const detail::ProductKey& key, const Operands& operands, cudaStream_t stream) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
      point(*found->second, operands.bias, operands.aux);
      return *found->second;
    }
    if (plans_.size() >= most_plans) plans_.clear();
    auto made = std::make_unique<detail::ProductPlan>(key.product);
    point(*made, operands.bias, operands.aux);
    choose(*made, key, operands, stream);
    return *plans_.emplace(key, std::move(made)).first->second;
  }
  // Starts the product by one algorithm; the result is written to `to`, in c's layout.
  cublasStatus_t start(const detail::ProductPlan& plan, const cublasLtMatmulAlgo_t& algorithm, const Product& product,
                       const Operands& operands, void* to, cudaStream_t stream) const {
    const double wide[2] = {1, product.accumulate ? 1.0 : 0.0};
    const float narrow_factors[2] = {1, product.accumulate ? 1.f : 0.f};
    const bool doubles = product.type == CUDA_R_64F;
    const void *const alpha = doubles ? static_cast<const void*>(&wide[0]) : &narrow_factors[0],
                      *const beta = doubles ? static_cast<const void*>(&wide[1]) : &narrow_factors[1];
    return cublasLtMatmul(handle_, plan.operation, alpha, operands.b, plan.b.get(), operands.a, plan.a.get(), beta, operands.c,
                          plan.c.get(), to, plan.c.get(), &algorithm, workspace_, workspace_bytes, stream);
  }
  static void point(detail::ProductPlan& plan, const void* bias, const void* aux) {
    if (bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux != nullptr) plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  WEFT_COLD void choose(detail::ProductPlan& plan, const detail::ProductKey& key, const Operands& operands,
                        cudaStream_t stream) const {
    detail::Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    // INPLACE would add partial sums with atomics, in varying order.
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c);
    const bool timed = allocate_ && !is_recorded(stream);
    std::array<cublasLtMatmulHeuristicResult_t, most_candidates> results = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                       preference.get(), timed ? most_candidates : 1, results.data(), &count);
    // Unsupported arguments of an epilogue (for example strides of aux) also give an invalid value.
    if (status == CUBLAS_STATUS_INVALID_VALUE && key.product.epilogue != Epilogue::none) return;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    blas_check(status, "cublasLtMatmulAlgoGetHeuristic");
    const auto end = std::remove_if(results.begin(), results.begin() + count,
                                    [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    const auto usable = std::size_t(end - results.begin());
    if (usable == 0) return;
    std::size_t best = 0;
    if (usable > 1) {
      // Not into c: an accumulated c is an operand, and the epilogue may read it.
      const std::shared_ptr<void> to = allocate_(key.product.m * key.product.ldc * bytes_of(key.product.c_type));
      best = fastest(usable, stream, [&](std::size_t i) {
        return start(plan, results[i].algo, key.product, operands, to.get(), stream) == CUBLAS_STATUS_SUCCESS;
      });
    }
    plan.algorithm = results[best].algo;
    plan.found = true;
  }
  static std::size_t bytes_of(cudaDataType_t type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;  // bfloat16 and float16
  }

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  Allocate allocate_;  // null: no timing
  std::unordered_map<detail::ProductKey, std::unique_ptr<detail::ProductPlan>, detail::ProductHash> plans_;
};

}  // namespace weft::gpu
