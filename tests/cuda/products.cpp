// SPDX-License-Identifier: Apache-2.0
// gpu::Blas over a test double of cuBLASLt: rows and columns, bias and aux in its epilogues have the meaning that layers assume.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/kernels/cuda/blas.hpp>

#include "support/fake_cublaslt.hpp"

using namespace weft;

namespace {

template <class T>
constexpr cudaDataType_t type_of = std::is_same_v<T, bfloat16> ? CUDA_R_16BF : CUDA_R_32F;
template <class T>
constexpr double tolerance = std::is_same_v<T, bfloat16> ? 1.2e-2 : 1e-5;

template <class T>
std::vector<T> normal(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<T> values(n);
  for (T& value : values) value = T(distribution(generator));
  return values;
}
template <class T>
void check_close(const std::vector<T>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double worst = 0, scale = 1;
  for (std::size_t i = 0; i < want.size(); ++i) {
    scale = std::max(scale, std::abs(want[i]));
    worst = std::max(worst, std::abs(double(float(got[i])) - want[i]));
  }
  CHECK(worst <= tolerance<T> * scale);
}
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

struct Streamed {
  CudaStream stream;
  gpu::Blas blas;
};

// op(a) [m, k]; `a` is stored as [k, m] if transposed.
template <class T>
double at(const std::vector<T>& x, bool turned, std::size_t rows, std::size_t columns, std::size_t i, std::size_t j) {
  return double(float(x[turned ? j * rows + i : i * columns + j]));
}

}  // namespace

TEST_CASE_TEMPLATE("a product with its bias, and with the GELU that follows", T, float, bfloat16) {
  Streamed on;
  const std::size_t m = 5, n = 16, k = 7;
  for (const bool turned : {false, true}) {
    const auto a = normal<T>(m * k, 1), b = normal<T>(k * n, 2), bias = normal<T>(n, 3);
    std::vector<double> sums(m * n), active(m * n);
    for (std::size_t i = 0; i < m * n; ++i) {
      sums[i] = double(float(bias[i % n]));
      for (std::size_t p = 0; p < k; ++p) sums[i] += at(a, false, m, k, i / n, p) * at(b, turned, k, n, p, i % n);
      active[i] = gelu(sums[i]);
    }
    gpu::Product product{.transpose_b = turned,
                         .m = m,
                         .n = n,
                         .k = k,
                         .lda = k,
                         .ldb = turned ? k : n,
                         .ldc = n,
                         .type = type_of<T>,
                         .c_type = type_of<T>,
                         .epilogue = gpu::Epilogue::bias};
    std::vector<T> c(m * n), before(m * n);
    REQUIRE(on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), bias.data()));
    on.stream.wait();
    check_close(c, sums);
    product.epilogue = gpu::Epilogue::gelu_aux_bias;
    product.ld_aux = n;
    REQUIRE(on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), bias.data(), before.data()));
    on.stream.wait();
    check_close(c, active);
    check_close(before, sums);

    // Its backward: (g bᵀ or g b) times the slope at aux.
    const auto g = normal<T>(m * k, 4);
    product.epilogue = gpu::Epilogue::gelu_backward;
    REQUIRE(on.blas.run(product, g.data(), b.data(), c.data(), on.stream.get(), nullptr, before.data()));
    on.stream.wait();
    std::vector<double> slopes(m * n);
    for (std::size_t i = 0; i < m * n; ++i) {
      double sum = 0;
      for (std::size_t p = 0; p < k; ++p) sum += at(g, false, m, k, i / n, p) * at(b, turned, k, n, p, i % n);
      const double x = double(float(before[i])), h = 1e-5;
      slopes[i] = sum * (gelu(x + h) - gelu(x - h)) / (2 * h);
    }
    check_close(c, slopes);
  }
}

TEST_CASE_TEMPLATE("a weight's gradient is added to, its bias' written beside it", T, float, bfloat16) {
  Streamed on;
  const std::size_t m = 6, n = 10, k = 9;
  const auto a = normal<T>(k * m, 1), b = normal<T>(k * n, 2);
  for (const bool of_b : {false, true})
    for (const bool accumulate : {false, true}) {
      std::vector<float> c = normal<float>(m * n, 3), sums(of_b ? n : m, 17.f);
      std::vector<double> want(c.begin(), c.end()), want_sums(sums.size());
      for (std::size_t i = 0; i < m * n; ++i) {
        if (!accumulate) want[i] = 0;
        for (std::size_t p = 0; p < k; ++p) want[i] += at(a, true, m, k, i / n, p) * at(b, false, k, n, p, i % n);
      }
      for (std::size_t i = 0; i < sums.size(); ++i)
        for (std::size_t p = 0; p < k; ++p) want_sums[i] += of_b ? at(b, false, k, n, p, i) : at(a, true, m, k, i, p);
      const gpu::Product product{.transpose_a = true,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .lda = m,
                                 .ldb = n,
                                 .ldc = n,
                                 .accumulate = accumulate,
                                 .type = type_of<T>,
                                 .c_type = CUDA_R_32F,
                                 .epilogue = of_b ? gpu::Epilogue::sums_of_b : gpu::Epilogue::sums_of_a};
      REQUIRE(on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), sums.data()));
      on.stream.wait();
      check_close(c, want);
      check_close(sums, want_sums);
    }
}

TEST_CASE("a product without a kernel in the library is refused before any work") {
  Streamed on;
  const std::size_t m = 3, k = 4;
  std::vector<float> a(m * k), c(64, 5.f), bias(16), aux(64);
  const auto b = normal<float>(k * 16, 1);
  gpu::Product product{.m = m,
                       .n = 12,
                       .k = k,
                       .lda = k,
                       .ldb = 12,
                       .ldc = 12,
                       .epilogue = gpu::Epilogue::gelu_aux_bias,
                       .ld_aux = 12};  // 12 is no multiple of 8
  CHECK(!on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), bias.data(), aux.data()));
  product = {.m = m, .n = 16, .k = k, .lda = k, .ldb = 16, .ldc = 16, .epilogue = gpu::Epilogue::bias};
  fake_cublaslt::epilogues() = false;
  CHECK(!on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), bias.data()));
  fake_cublaslt::epilogues() = true;
  on.stream.wait();
  CHECK(c == std::vector<float>(64, 5.f));
  CHECK(!on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get(), bias.data()));  // it remembers
  CHECK(on.blas.plans() == 2);
  const int fused = fake_cublaslt::fused();
  product.epilogue = gpu::Epilogue::none;
  CHECK(on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get()));
  CHECK(fake_cublaslt::fused() == fused);
  on.stream.wait();
}

namespace {

/// Algorithms and counts of the double for one test case, and the promise that no rule was broken.
struct Proposed {
  explicit Proposed(std::vector<fake_cublaslt::Algorithm> all) {
    fake_cublaslt::runs().assign(all.size(), 0);
    fake_cublaslt::algorithms() = std::move(all);
    fake_cublaslt::violations().clear();
  }
  ~Proposed() {
    fake_cublaslt::algorithms() = {{}};
    CHECK(fake_cublaslt::violations().empty());
    fake_cublaslt::violations().clear();
  }
};

/// Memory at a multiple of 256 bytes.
template <class T>
struct Block {
  explicit Block(const std::vector<T>& values) : memory(values.size() + 512 / sizeof(T)) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256); }
  std::vector<T> memory;
};

/// A product [4, 8] of fours, added to c or not.
struct Fours {
  std::vector<float> a = std::vector<float>(4 * 16, 0.5f), b = std::vector<float>(16 * 8, 0.5f),
                     c = std::vector<float>(4 * 8, 1.f);
  gpu::Product product{.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 8};
  bool run(Streamed& on) {
    const bool ran = on.blas.run(product, a.data(), b.data(), c.data(), on.stream.get());
    on.stream.wait();
    return ran;
  }
};

}  // namespace

TEST_CASE("the library's first algorithm is taken, and none that adds with atomics or wants more workspace") {
  const Proposed proposed(
      {{.ms = 1, .atomics = true}, {.ms = 1, .workspace = gpu::Blas::workspace_bytes + 1}, {.ms = 5}, {.ms = 1}});
  Streamed on;
  Fours fours;
  for (int i = 0; i < 3; ++i) REQUIRE(fours.run(on));
  CHECK(fake_cublaslt::runs() == std::vector<int>{0, 0, 3, 0});
  CHECK(fours.c == std::vector<float>(32, 4.f));
}

TEST_CASE("the fastest of the first 8 algorithms, timed once a shape, if the program opts in") {
  std::vector<fake_cublaslt::Algorithm> all{
      {.ms = 5}, {.ms = 4, .workspace = gpu::Blas::workspace_bytes}, {.ms = 1, .atomics = true}};
  all.insert(all.end(), {{.ms = 2, .workspace = 64}, {.ms = 3}, {.ms = 6}, {.ms = 7}, {.ms = 8}, {.ms = 9}, {.ms = 1}});
  const Proposed proposed(all);
  Streamed on;
  int blocks = 0;
  std::size_t bytes = 0;
  std::weak_ptr<void> last;
  on.blas.time_algorithms([&](std::size_t wanted) {
    ++blocks, bytes = wanted;
    const auto memory = std::make_shared<Block<char>>(std::vector<char>(wanted));
    last = memory;
    return std::shared_ptr<void>(memory, memory->data());
  });
  for (const bool accumulate : {false, true}) {
    fake_cublaslt::runs().assign(all.size(), 0);
    Fours fours;
    fours.product.accumulate = accumulate;
    REQUIRE(fours.run(on));
    // One warm-up run and three timed runs; the fastest once more. The ninth usable algorithm is not requested.
    CHECK(fake_cublaslt::runs() == std::vector<int>{4, 4, 0, 5, 4, 4, 4, 4, 4, 0});
    CHECK(fours.c == std::vector<float>(32, accumulate ? 5.f : 4.f));  // timed runs have not added to it
    CHECK((blocks == (accumulate ? 2 : 1) && bytes == 4 * 8 * sizeof(float) && last.expired()));
    REQUIRE(fours.run(on));
    CHECK(fours.c == std::vector<float>(32, accumulate ? 9.f : 4.f));
    CHECK(fake_cublaslt::runs() == std::vector<int>{4, 4, 0, 6, 4, 4, 4, 4, 4, 0});
  }
  // The additional output of a GELU, and overwritten sums, are those of the last run.
  Fours fours;
  std::vector<float> bias(8, 1.f), before(32);
  fours.product.epilogue = gpu::Epilogue::gelu_aux_bias, fours.product.ld_aux = 8;
  REQUIRE(
      on.blas.run(fours.product, fours.a.data(), fours.b.data(), fours.c.data(), on.stream.get(), bias.data(), before.data()));
  on.stream.wait();
  CHECK(before == std::vector<float>(32, 5.f));
  // The gradient may overwrite the GELU's input.
  fours.product.epilogue = gpu::Epilogue::gelu_backward;
  std::fill(before.begin(), before.end(), 0.f);
  REQUIRE(on.blas.run(fours.product, fours.a.data(), fours.b.data(), before.data(), on.stream.get(), nullptr, before.data()));
  on.stream.wait();
  CHECK(before == std::vector<float>(32, 2.f));  // the slope at 0 is a half
}

TEST_CASE("a stream that is recorded is not timed") {
  const Proposed proposed({{.ms = 5}, {.ms = 1}});
  Streamed on;
  on.blas.time_algorithms([](std::size_t) {
    FAIL_CHECK("nothing is timed");
    return std::shared_ptr<void>();
  });
  Fours fours;
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(on.stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  REQUIRE(on.blas.run(fours.product, fours.a.data(), fours.b.data(), fours.c.data(), on.stream.get()));
  cuda_check(cudaStreamEndCapture(on.stream.get(), &graph), "cudaStreamEndCapture");
  cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  REQUIRE(fours.run(on));  // and the algorithm in a graph stays the same
  CHECK(fake_cublaslt::runs() == std::vector<int>{2, 0});
}

TEST_CASE("operands at other alignments are other products") {
  const Proposed proposed({{.ms = 1, .workspace = 1000}});
  Streamed on;
  Block<float> a(std::vector<float>(4 * 16 + 1)), b(std::vector<float>(16 * 8 + 2)), c(std::vector<float>(4 * 8 + 4));
  const gpu::Product product{.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 8};
  for (const bool aside : {false, true})
    REQUIRE(on.blas.run(product, a.data() + (aside ? 1 : 0), b.data() + (aside ? 2 : 0), c.data() + (aside ? 4 : 0),
                        on.stream.get()));
  on.stream.wait();
  CHECK(on.blas.plans() == 2);
}

TEST_CASE(
    "the double reports operands that are less aligned than declared, a small workspace and an algorithm of another product") {
  fake_cublaslt::algorithms() = {{.ms = 1, .workspace = 1000}};
  fake_cublaslt::violations().clear();
  Streamed on;
  Block<float> a(std::vector<float>(4 * 16 + 1)), b(std::vector<float>(16 * 8)), c(std::vector<float>(4 * 8));
  const gpu::Product product{.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 8};
  gpu::detail::ProductPlan plan(product);
  const gpu::detail::ProductPlan wider({.m = 4, .n = 8, .k = 16, .lda = 16, .ldb = 8, .ldc = 9});
  gpu::detail::Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::size_t(2000));
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  REQUIRE(cublasLtMatmulAlgoGetHeuristic(nullptr, plan.operation, plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                         preference.get(), 1, &result, &count) == CUBLAS_STATUS_SUCCESS);
  REQUIRE((count == 1 && result.workspaceSize == 1000));
  void* workspace = nullptr;
  REQUIRE(cudaMalloc(&workspace, 1000) == cudaSuccess);
  const float one = 1, zero = 0;
  const auto run = [&](float* from, std::size_t bytes, const gpu::detail::ProductPlan& of) {
    fake_cublaslt::violations().clear();
    const cublasStatus_t status =
        cublasLtMatmul(nullptr, of.operation, &one, b.data(), of.b.get(), from, of.a.get(), &zero, c.data(), of.c.get(), c.data(),
                       of.c.get(), &result.algo, workspace, bytes, on.stream.get());
    on.stream.wait();
    CHECK((status == CUBLAS_STATUS_SUCCESS) == fake_cublaslt::violations().empty());
    return fake_cublaslt::violations().empty() ? std::string() : fake_cublaslt::violations().front();
  };
  CHECK(run(a.data(), 1000, plan) == "");
  // weft's a is cuBLASLt's second operand.
  CHECK(run(a.data() + 1, 1000, plan) == "operand b of an algorithm for addresses at multiples of 256 is not at one");
  CHECK(run(a.data(), 999, plan) == "a workspace of 999 bytes, which are not there or fewer than the algorithm's 1000");
  CHECK(run(a.data(), 1001, plan) == "a workspace of 1001 bytes, which are not there or fewer than the algorithm's 1000");
  CHECK(run(a.data(), 1000, wider) == "a product by an algorithm of another one");
  fake_cublaslt::violations().clear();
  fake_cublaslt::algorithms() = {{}};
  REQUIRE(cudaFree(workspace) == cudaSuccess);
}
