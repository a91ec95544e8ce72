// SPDX-License-Identifier: Apache-2.0
// gpu::Blas over a test double of cuBLASLt: that rows and columns, bias and aux mean in its epilogues what layers take them for.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
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

// op(a) [m, k] of a, stored [k, m] where turned.
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

TEST_CASE("what the library has no kernel for is said before anything is done") {
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
