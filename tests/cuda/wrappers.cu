// SPDX-License-Identifier: Apache-2.0
// Compiled and linked by test_wrappers.sh with the libraries of the CUDA toolkit, and run without a GPU: functions that need none
// (keys, descriptors, layouts, errors) must be correct, and those that need one must report it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <weft/device/cuda/graph.hpp>
#include <weft/device/cuda/pinned_memory.hpp>
#include <weft/device/cuda/runtime.hpp>
#include <weft/kernels/cuda/blas.hpp>
#include <weft/kernels/cuda/expert_order.cuh>
#include <weft/kernels/cudnn/attention.hpp>

using namespace weft;

// The program's own definition has priority over the library's.
static std::size_t found_cudnn = CUDNN_VERSION;
extern "C" std::size_t CUDNNWINAPI cudnnGetVersion() { return found_cudnn; }

static int failures = 0;
#define CHECK(...)                                                          \
  do {                                                                      \
    if (!(__VA_ARGS__)) {                                                   \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      ++failures;                                                           \
    }                                                                       \
  } while (false)

template <class E, class F>
static void refuses(F&& f, const char* words, int line) {
  try {
    f();
    std::printf("line %d: nothing was thrown, expected '%s'\n", line, words);
    ++failures;
  } catch (const E& error) {
    if (std::strstr(error.what(), words) == nullptr || std::strchr(error.what(), '\n') != nullptr) {
      std::printf("line %d: '%s' does not say '%s' in one line\n", line, error.what(), words);
      ++failures;
    }
  }
}
#define REFUSES(error, words, ...) refuses<error>([&] { __VA_ARGS__; }, words, __LINE__)

static void choice_of_a_gpu() {
  constexpr GpuMachine two{2, 13000, 13000};
  CHECK(choose_gpu(two, 0, 2) == 0 && choose_gpu(two, 1, 2) == 1 && choose_gpu(two, 1, 4, true) == 1 &&
        choose_gpu(two, 2, 4, true) == 0);
  CHECK(choose_gpu({1, 13000, 13010}, 0, 1) == 0);  // an older driver of the same major version will do
  REFUSES(UsageError, "no NVIDIA driver on this machine", choose_gpu({0, 0, 13000}, 0, 1));
  REFUSES(UsageError, "the driver supports CUDA up to 12.4, but this program was built with 13.0",
          choose_gpu({1, 12040, 13000}, 0, 1));
  REFUSES(UsageError, "no GPU is visible", choose_gpu({0, 13000, 13000}, 0, 1));
  REFUSES(UsageError, "3 ranks on this machine, but 2 GPUs", choose_gpu(two, 0, 3));
  REFUSES(UsageError, "local rank 2 is not one of the 2 ranks", choose_gpu(two, 2, 2));
}

static void products() {
  const gpu::Product p{
      .transpose_b = true, .m = 6, .n = 8, .k = 4, .lda = 5, .ldb = 7, .ldc = 9, .type = CUDA_R_16BF, .c_type = CUDA_R_32F};
  const auto check_layout = [](const gpu::detail::MatrixLayout& layout, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t ld) {
    std::uint64_t r = 0, c = 0;
    std::int64_t l = 0;
    std::size_t written = 0;
    CHECK(cublasLtMatrixLayoutGetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_ROWS, &r, sizeof r, &written) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatrixLayoutGetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_COLS, &c, sizeof c, &written) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatrixLayoutGetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_LD, &l, sizeof l, &written) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(r == rows && c == columns && l == ld);
  };
  // Row-major a [6, 4], bᵀ stored [8, 4], c [6, 8] are column-major [4, 6], [4, 8] and [8, 6].
  const gpu::detail::ProductPlan plan(p);
  check_layout(plan.a, 4, 6, 5);
  check_layout(plan.b, 4, 8, 7);
  check_layout(plan.c, 8, 6, 9);
  const auto attribute = [](const gpu::detail::ProductPlan& made, cublasLtMatmulDescAttributes_t name) {
    std::int32_t value = -1;
    std::size_t written = 0;
    CHECK(cublasLtMatmulDescGetAttribute(made.operation, name, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS);
    return value;
  };
  CHECK(attribute(plan, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T &&
        attribute(plan, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N);
  CHECK(attribute(plan, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_32F &&
        attribute(plan, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_DEFAULT);
  const gpu::detail::ProductPlan weights({.transpose_a = true,
                                          .m = 6,
                                          .n = 8,
                                          .k = 4,
                                          .lda = 6,
                                          .ldb = 8,
                                          .ldc = 8,
                                          .tf32 = true,
                                          .epilogue = gpu::Epilogue::sums_of_b});
  check_layout(weights.a, 6, 4, 6);
  check_layout(weights.b, 8, 4, 8);
  CHECK(attribute(weights, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_N &&
        attribute(weights, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T);
  CHECK(attribute(weights, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_32F_FAST_TF32 &&
        attribute(weights, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BGRADA);
  const gpu::detail::ProductPlan doubles(
      {.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .type = CUDA_R_64F, .c_type = CUDA_R_64F, .tf32 = true});
  CHECK(attribute(doubles, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_64F &&
        attribute(doubles, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_64F);

  // Products that differ in a single field or alignment are distinct.
  const gpu::detail::ProductKey key{p, 256, 256, 256, 256, 256};
  auto other = key;
  CHECK(other == key && gpu::detail::ProductHash()(other) == gpu::detail::ProductHash()(key));
  other.product.accumulate = true;
  CHECK(!(other == key));
  other = key, other.product.ld_aux = 1;
  CHECK(!(other == key));
  other = key, other.b = 16;
  CHECK(!(other == key) && gpu::detail::ProductHash()(other) != gpu::detail::ProductHash()(key));
  const auto aligned = [](std::uintptr_t address) { return gpu::detail::alignment_of(reinterpret_cast<const void*>(address)); };
  CHECK(aligned(0x1000) == 256 && aligned(0x1010) == 16 && aligned(0x1002) == 2 && aligned(0) == 256);
}

static void order_of_experts() {
  // Only the arithmetic: CUB does the sort. Expert 4 of 4 marks dropped slots.
  const std::vector<std::int32_t> sorted{0, 0, 0, 2, 2, 3, 4, 4};
  std::vector<std::int32_t> begin;
  for (std::int32_t expert = 0; expert <= 4; ++expert) begin.push_back(gpu::detail::first_of_expert(sorted.data(), 8, expert));
  CHECK(begin == std::vector<std::int32_t>{0, 3, 3, 5, 6});
  std::vector<std::int32_t> places;
  for (std::int32_t i = 0; i < 6; ++i) places.push_back(gpu::detail::place_of_sorted(begin.data(), sorted[std::size_t(i)], i, 4));
  CHECK(places == std::vector<std::int32_t>{0, 1, 2, 4, 5, 8});
  gpu::ExpertOrder order;
  REFUSES(ShapeError, "room(9) < slots(8) + experts(4) * (grain(4) - 1)",
          order.assign(nullptr, 8, 4, 4, nullptr, 9, nullptr, nullptr, nullptr));
}

static void without_a_gpu() {
  const GpuMachine machine = gpu_machine();
  CHECK(machine.gpus == 0 && machine.runtime >= 12000);
  REFUSES(UsageError, "cuda: no", require_gpu(machine));
  REFUSES(CudaError, "cublasLtCreate failed", gpu::Blas blas);
  REFUSES(CudaError, "cudnnCreate failed", cudnn::Attention attention(false));
  found_cudnn = 90502;  // its kernels add to sums of dq that are not initialised to zero
  REFUSES(CudaError, "cuDNN 9.5 was found at run time: attention needs 9.8 or newer", cudnn::Attention attention(false));
  found_cudnn = CUDNN_VERSION;
  REFUSES(CudaError, "cuDNN 9.7 was found", cudnn::require_version(90799));
  cudnn::require_version(90800);
  REFUSES(CudaError, "cudaMallocHost failed", gpu::PinnedMemory memory(64));
  REFUSES(CudaError, "cudaStreamCreateWithFlags failed", gpu::SideCopy copy);
  gpu::StepGraph graph;
  int runs = 0;
  const auto step = [&] { ++runs; };
  for (int i = 0; i < gpu::StepGraph::warm_up; ++i) graph.run(nullptr, {1}, step);
  CHECK(runs == gpu::StepGraph::warm_up && !graph.recorded());
  graph.run(nullptr, {2}, step);  // another key starts again
  graph.run(nullptr, {2}, step);
  REFUSES(CudaError, "cudaStreamBeginCapture failed", graph.run(nullptr, {2}, step));
  CHECK(runs == 2 * gpu::StepGraph::warm_up);
}

// Without a GPU, cuDNN can still report whether it has a kernel for a graph on an H200; nothing is compiled for it.
static constexpr const char h200[] =
    R"({"cudnnVersion":91900,"schemaVersion":1,"deviceName":"NVIDIA H200","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
    R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("totalGlobalMem":150754820096,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560})";

static cudnn::AttentionKey attention_key(std::size_t kv_heads, std::size_t head_width, bool causal, cudnnDataType_t type,
                                         cudnnDataType_t out_type) {
  const std::size_t heads = 12, width = heads * head_width, fused = width + 2 * kv_heads * head_width;
  return {type,
          out_type,
          8,
          1024,
          1024,
          heads,
          kv_heads,
          head_width,
          1024,
          1024,
          1024,
          causal,
          {fused, fused, fused, width, width, fused, fused, fused}};
}

static void attention_on_an_h200() {
  const cudnn::Descriptor properties = cudnn::device_properties(h200, sizeof h200 - 1);
  for (const std::size_t kv_heads : {12, 4})
    for (const bool causal : {true, false})
      for (const cudnnDataType_t type : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF})
        for (const cudnnDataType_t out_type : {type, CUDNN_DATA_FLOAT}) {
          const auto key = attention_key(kv_heads, 64, causal, type, out_type);
          const std::size_t forward = cudnn::detail::forward_graph(key).kernels(properties, false),
                            backward = cudnn::detail::backward_graph(key).kernels(properties, false);
          std::printf("cuDNN on an H200: kv heads %zu, causal %d, type %d, result %d: %zu and %zu kernels\n", kv_heads, causal,
                      int(type), int(out_type), forward, backward);
          CHECK(forward > 0);
          CHECK(backward > 0);  // gradients of shared keys in float, too: of each query head
          CHECK(key.splits_groups() == (kv_heads == 4 && out_type == CUDNN_DATA_FLOAT));
          CHECK(cudnn::detail::forward_graph(key).kernels(properties, true) > 0);
          const std::size_t same = cudnn::detail::backward_graph(key, true).kernels(properties, true);
          std::printf("  with the same bits in every run: %zu\n", same);
          CHECK(same > 0);
        }
  // A ring's block: queries and keys are parts of longer sequences.
  for (const std::size_t kv_heads : {12, 4, 1}) {
    auto block = attention_key(kv_heads, 64, false, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT);
    block.queries = 512, block.keys = 256, block.statistic_step = 2048;
    CHECK(cudnn::detail::forward_graph(block).kernels(properties, false) > 0);
    CHECK(cudnn::detail::backward_graph(block).kernels(properties, false) > 0);
  }
  // An unsupported graph is not an error.
  CHECK(cudnn::detail::forward_graph(attention_key(12, 60, true, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16))
            .kernels(properties, false) == 0);
}

int main(int argc, char**) {
  if (argc > 1) {
    attention_on_an_h200();
  } else {
    choice_of_a_gpu();
    products();
    order_of_experts();
    without_a_gpu();
  }
  if (failures == 0) std::printf("passed\n");
  return failures == 0 ? 0 : 1;
}
