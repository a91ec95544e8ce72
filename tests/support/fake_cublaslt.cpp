// SPDX-License-Identifier: Apache-2.0
// A test double of the parts of cuBLASLt that gpu::Blas calls: columns first, epilogues and their conditions as its documentation
// and header state them, computed in double on the queue of the test double of the CUDA runtime. What it says of speed or of
// which kernels exist is nothing.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include <weft/core/scalar.hpp>

#include "support/fake_cublaslt.hpp"
#include "support/fake_nccl/internal.hpp"

namespace {

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
};
struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::map<int, std::vector<char>> attributes;

  template <class T>
  T get(cublasLtMatmulDescAttributes_t name, T otherwise) const {
    const auto found = attributes.find(int(name));
    if (found == attributes.end()) return otherwise;
    T value{};
    std::memcpy(&value, found->second.data(), sizeof value);
    return value;
  }
  std::uint32_t epilogue() const { return get<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT); }
};

Layout& layout_of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
const Description& description_of(cublasLtMatmulDesc_t description) { return *reinterpret_cast<const Description*>(description); }

double read(cudaDataType_t type, const void* data, std::size_t i) {
  switch (type) {
    case CUDA_R_16BF: return float(static_cast<const weft::bfloat16*>(data)[i]);
    case CUDA_R_16F: return float(static_cast<const weft::float16*>(data)[i]);
    case CUDA_R_64F: return static_cast<const double*>(data)[i];
    default: return static_cast<const float*>(data)[i];
  }
}
void write(cudaDataType_t type, void* data, std::size_t i, double value) {
  switch (type) {
    case CUDA_R_16BF: static_cast<weft::bfloat16*>(data)[i] = weft::bfloat16(float(value)); break;
    case CUDA_R_16F: static_cast<weft::float16*>(data)[i] = weft::float16(float(value)); break;
    case CUDA_R_64F: static_cast<double*>(data)[i] = value; break;
    default: static_cast<float*>(data)[i] = float(value);
  }
}
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

constexpr std::uint32_t aux_epilogues = 128,
                        bias_epilogues = CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB;

// What the documentation asks of a product.
cublasStatus_t judge(const Description& d, const Layout& c) {
  const std::uint32_t epilogue = d.epilogue();
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (!fake_cublaslt::epilogues() || c.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (epilogue & bias_epilogues) {
    if (d.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (d.get<std::int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1) != std::int32_t(c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (epilogue & aux_epilogues) {
    const auto ld = d.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
    if (d.get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr) == nullptr || ld % 8 != 0 || ld < std::int64_t(c.rows))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

bool& fake_cublaslt::epilogues() {
  static bool has = true;
  return has;
}
int& fake_cublaslt::fused() {
  static int count = 0;
  return count;
}

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t) { return "a status"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "of the test double"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  if (ld < std::int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete &layout_of(layout), CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return delete &description_of(description), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  const auto* from = static_cast<const char*>(value);
  reinterpret_cast<Description*>(description)->attributes[int(name)].assign(from, from + bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return *preference = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  const cublasStatus_t status = judge(description_of(description), layout_of(d));
  *count = status == CUBLAS_STATUS_SUCCESS;
  if (*count) results[0].state = CUBLAS_STATUS_SUCCESS;
  return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  const Description how = description_of(description);
  const Layout la = layout_of(a_layout), lb = layout_of(b_layout), lc = layout_of(c_layout), ld = layout_of(d_layout);
  if (const cublasStatus_t status = judge(how, ld); status != CUBLAS_STATUS_SUCCESS) return status;
  const bool turn_a = how.get<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T,
             turn_b = how.get<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T;
  const std::uint64_t m = turn_a ? la.columns : la.rows, k = turn_a ? la.rows : la.columns, n = turn_b ? lb.rows : lb.columns;
  if ((turn_b ? lb.columns : lb.rows) != k || ld.rows != m || ld.columns != n || lc.rows != m || lc.columns != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  const double one = read(how.scale, alpha, 0), other = read(how.scale, beta, 0);
  fake_cublaslt::fused() += how.epilogue() != CUBLASLT_EPILOGUE_DEFAULT;
  fake_nccl::enqueue(stream, [=] {
    const auto left = [&](std::uint64_t row, std::uint64_t p) {
      return read(la.type, a, turn_a ? p + row * std::uint64_t(la.ld) : row + p * std::uint64_t(la.ld));
    };
    const auto right = [&](std::uint64_t p, std::uint64_t column) {
      return read(lb.type, b, turn_b ? column + p * std::uint64_t(lb.ld) : p + column * std::uint64_t(lb.ld));
    };
    void *const bias = how.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr), *const aux = how.get<void*>(
                                                                                       CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                                                       nullptr);
    const auto aux_ld = std::uint64_t(how.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0));
    const std::uint32_t epilogue = how.epilogue();
    for (std::uint64_t column = 0; column < n; ++column)
      for (std::uint64_t row = 0; row < m; ++row) {
        double sum = other == 0 ? 0 : other * read(lc.type, c, row + column * std::uint64_t(lc.ld));
        for (std::uint64_t p = 0; p < k; ++p) sum += one * left(row, p) * right(p, column);
        if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) sum += read(ld.type, bias, row);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          write(ld.type, aux, row + column * aux_ld, sum);
          sum = gelu(sum);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= gelu_slope(read(ld.type, aux, row + column * aux_ld));
        write(ld.type, d, row + column * std::uint64_t(ld.ld), sum);
      }
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB)
      for (std::uint64_t i = 0; i < (epilogue == CUBLASLT_EPILOGUE_BGRADA ? m : n); ++i) {
        double sum = 0;
        for (std::uint64_t p = 0; p < k; ++p) sum += epilogue == CUBLASLT_EPILOGUE_BGRADA ? left(i, p) : right(p, i);
        write(ld.type, bias, i, sum);
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
