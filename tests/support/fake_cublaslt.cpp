// SPDX-License-Identifier: Apache-2.0
// A test double of the parts of cuBLASLt that gpu::Blas calls. Columns come first; epilogues and their conditions follow its
// documentation and header. Results are computed in double on the queue of the test double of the CUDA runtime. Its times and its
// set of kernels have no meaning for a real GPU.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
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

/// A caller's requirements for algorithms: bytes of workspace, alignments of a, b, c and d, and schemes of reduction.
struct Preference {
  std::uint64_t workspace = 0;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};  // cuBLASLt's defaults
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
};
/// The contents of an algorithm: its number, the preference with which it was requested, and its product.
struct Proposal {
  std::uint32_t number;
  std::array<std::uint32_t, 4> alignments;
  std::uint64_t product;
};
static_assert(sizeof(Proposal) <= sizeof(cublasLtMatmulAlgo_t));

double spent_ms = 0;  // by products since the last query; written by the stream's thread, and read after a wait for it

void violate(const std::string& what) {
  std::fprintf(stderr, "fake cuBLASLt: %s\n", what.c_str());
  fake_cublaslt::violations().push_back(what);
}

Preference& preference_of(cublasLtMatmulPreference_t preference) { return *reinterpret_cast<Preference*>(preference); }
Layout& layout_of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
const Description& description_of(cublasLtMatmulDesc_t description) { return *reinterpret_cast<const Description*>(description); }

double number_at(cudaDataType_t type, const void* data, std::size_t i) {
  switch (type) {
    case CUDA_R_16BF: return float(static_cast<const weft::bfloat16*>(data)[i]);
    case CUDA_R_16F: return float(static_cast<const weft::float16*>(data)[i]);
    case CUDA_R_64F: return static_cast<const double*>(data)[i];
    default: return static_cast<const float*>(data)[i];
  }
}
void set_number(cudaDataType_t type, void* data, std::size_t i, double value) {
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

// The conditions that the documentation requires of a product.
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

// A product's operation and layouts as one number, without the addresses of bias and aux.
std::uint64_t product_of(const Description& how, std::initializer_list<Layout> layouts) {
  std::uint64_t hash = std::uint64_t(how.compute);
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u; };
  for (const auto name : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB})
    add(std::uint64_t(how.get<std::int32_t>(name, CUBLAS_OP_N)));
  add(how.epilogue());
  add(std::uint64_t(how.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0)));
  for (const Layout& layout : layouts)
    for (const std::uint64_t value : {std::uint64_t(layout.type), layout.rows, layout.columns, std::uint64_t(layout.ld)})
      add(value);
  return hash;
}

}  // namespace

std::vector<fake_cublaslt::Algorithm>& fake_cublaslt::algorithms() {
  static std::vector<Algorithm> all(1);
  return all;
}
std::vector<int>& fake_cublaslt::runs() {
  static std::vector<int> counts;
  counts.resize(std::max(counts.size(), algorithms().size()));
  return counts;
}
std::vector<std::string>& fake_cublaslt::violations() {
  static std::vector<std::string> all;
  return all;
}
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
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete &preference_of(preference), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value, size_t bytes) {
  Preference& to = preference_of(preference);
  const auto set = [&](auto& place) {
    if (bytes != sizeof place) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&place, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(to.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(to.schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(to.alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(to.alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(to.alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(to.alignments[3]);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  const Description& how = description_of(description);
  if (const cublasStatus_t status = judge(how, layout_of(d)); status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& wanted = preference_of(preference);
  const auto& all = fake_cublaslt::algorithms();
  for (std::size_t i = 0; i < all.size() && *count < most; ++i) {
    if (all[i].workspace > wanted.workspace || (all[i].atomics && (wanted.schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0))
      continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    const Proposal proposal{std::uint32_t(i), wanted.alignments,
                            product_of(how, {layout_of(a), layout_of(b), layout_of(c), layout_of(d)})};
    std::memcpy(&result.algo, &proposal, sizeof proposal);
    result.workspaceSize = all[i].workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

// The time between two events is that of the products since the last query.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = float(std::exchange(spent_ms, 0));
  return cudaSuccess;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Description how = description_of(description);
  const Layout la = layout_of(a_layout), lb = layout_of(b_layout), lc = layout_of(c_layout), ld = layout_of(d_layout);
  if (const cublasStatus_t status = judge(how, ld); status != CUBLAS_STATUS_SUCCESS) return status;
  const bool turn_a = how.get<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T,
             turn_b = how.get<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T;
  const std::uint64_t m = turn_a ? la.columns : la.rows, k = turn_a ? la.rows : la.columns, n = turn_b ? lb.rows : lb.columns;
  if ((turn_b ? lb.columns : lb.rows) != k || ld.rows != m || ld.columns != n || lc.rows != m || lc.columns != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  Proposal chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen.product != product_of(how, {la, lb, lc, ld})) {
    violate("a product by an algorithm of another one");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::array<const void*, 4> operands{a, b, c, d};
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (reinterpret_cast<std::uintptr_t>(operands[i]) % chosen.alignments[i] != 0) {
      violate(std::string("operand ") + "abcd"[i] + " of an algorithm for addresses at multiples of " +
              std::to_string(chosen.alignments[i]) + " is not at one");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  const fake_cublaslt::Algorithm own = fake_cublaslt::algorithms().at(chosen.number);
  if (workspace_bytes < own.workspace || (workspace_bytes != 0 && !fake_nccl::on_device(workspace, workspace_bytes))) {
    violate("a workspace of " + std::to_string(workspace_bytes) + " bytes, which are not there or fewer than the algorithm's " +
            std::to_string(own.workspace));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  ++fake_cublaslt::runs()[chosen.number];
  const double one = number_at(how.scale, alpha, 0), other = number_at(how.scale, beta, 0);
  fake_cublaslt::fused() += how.epilogue() != CUBLASLT_EPILOGUE_DEFAULT;
  fake_nccl::enqueue(stream, [=] {
    spent_ms += double(own.ms);
    std::memset(fake_nccl::seen_by_streams(workspace), 0xff, own.workspace);
    const auto left = [&](std::uint64_t row, std::uint64_t p) {
      return number_at(la.type, a, turn_a ? p + row * std::uint64_t(la.ld) : row + p * std::uint64_t(la.ld));
    };
    const auto right = [&](std::uint64_t p, std::uint64_t column) {
      return number_at(lb.type, b, turn_b ? column + p * std::uint64_t(lb.ld) : p + column * std::uint64_t(lb.ld));
    };
    void *const bias = how.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr), *const aux = how.get<void*>(
                                                                                       CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                                                       nullptr);
    const auto aux_ld = std::uint64_t(how.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0));
    const std::uint32_t epilogue = how.epilogue();
    for (std::uint64_t column = 0; column < n; ++column)
      for (std::uint64_t row = 0; row < m; ++row) {
        double sum = other == 0 ? 0 : other * number_at(lc.type, c, row + column * std::uint64_t(lc.ld));
        for (std::uint64_t p = 0; p < k; ++p) sum += one * left(row, p) * right(p, column);
        if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          sum += number_at(ld.type, bias, row);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          set_number(ld.type, aux, row + column * aux_ld, sum);
          sum = gelu(sum);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= gelu_slope(number_at(ld.type, aux, row + column * aux_ld));
        set_number(ld.type, d, row + column * std::uint64_t(ld.ld), sum);
      }
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB)
      for (std::uint64_t i = 0; i < (epilogue == CUBLASLT_EPILOGUE_BGRADA ? m : n); ++i) {
        double sum = 0;
        for (std::uint64_t p = 0; p < k; ++p) sum += epilogue == CUBLASLT_EPILOGUE_BGRADA ? left(i, p) : right(p, i);
        set_number(ld.type, bias, i, sum);
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
