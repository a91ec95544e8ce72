// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/matmul_few_rows.hpp weft/kernels/detail/attention_one_row.hpp
// Attention of single rows to a cache, and products of few rows, compared with plain loops in double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/kernels/cached_attention.hpp>
#include <weft/kernels/detail/attention_one_row.hpp>
#include <weft/kernels/detail/matmul_few_rows.hpp>
#include <weft/kernels/matmul.hpp>

using namespace weft;

namespace {

using HostDevice = Device<Kokkos::DefaultHostExecutionSpace>;

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = T(accumulate_t<T>(Philox::normal(seed, i)));
  return all;
}
template <class T>
double number(T x) {
  return double(accumulate_t<T>(x));
}

template <class T>
void check_attention(std::size_t heads, std::size_t kv_heads, std::size_t width, std::size_t window, double tolerance) {
  HostDevice device;
  constexpr std::size_t sequences = 3, capacity = 40;
  const std::size_t kv = kv_heads * width;
  std::vector<T> keys(sequences * kv * capacity), values(keys.size());
  const auto k = numbers<T>(sequences * capacity * (kv + 3), 1), v = numbers<T>(sequences * capacity * (kv + 1), 2);
  std::vector<std::int32_t> of, at;
  for (std::size_t i = 0; i < sequences * capacity; ++i)
    of.push_back(std::int32_t(i / capacity)), at.push_back(std::int32_t(i % capacity));
  kernels::CacheExtents e{.rows = of.size(),
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_width = width,
                          .capacity = capacity,
                          .longest = capacity,
                          .window = window};
  kernels::append_to_cache(device, e, {of.data(), at.data()}, k.data(), kv + 3, v.data(), kv + 1, keys.data(), values.data());
  const std::vector<std::int32_t> row_of = {2, 0, -1, 1, 0}, row_at = {39, 0, 0, 16, 7};
  e.rows = row_of.size();
  const std::size_t stride = heads * width + 2;
  const auto q = numbers<T>(e.rows * stride, 3);
  std::vector<T> out(e.rows * heads * width, T(7.f));
  kernels::cached_attention(device, e, {row_of.data(), row_at.data()}, q.data(), stride, keys.data(), values.data(), out.data());
  double worst = 0;
  for (std::size_t row = 0; row < e.rows; ++row)
    for (std::size_t head = 0; head < heads; ++head) {
      std::vector<double> expected(width, 0.0);
      if (row_of[row] >= 0) {
        const std::size_t kv_head = head / (heads / kv_heads), end = std::size_t(row_at[row]) + 1,
                          first = window != 0 && window < end ? end - window : 0;
        double total = 0;
        for (std::size_t i = first; i < end; ++i) {
          const std::size_t token = std::size_t(row_of[row]) * capacity + i;
          double score = 0;
          for (std::size_t d = 0; d < width; ++d)
            score += number(q[row * stride + head * width + d]) * number(k[token * (kv + 3) + kv_head * width + d]);
          const double power = std::exp(score / std::sqrt(double(width)));
          total += power;
          for (std::size_t d = 0; d < width; ++d) expected[d] += power * number(v[token * (kv + 1) + kv_head * width + d]);
        }
        for (double& x : expected) x /= total;
      }
      for (std::size_t d = 0; d < width; ++d)
        worst = std::max(worst, std::abs(number(out[(row * heads + head) * width + d]) - expected[d]));
    }
  INFO("heads " << heads << ", key-value heads " << kv_heads << ", width " << width << ", window " << window);
  CHECK(worst <= tolerance);
}

template <class T>
void check_product(double tolerance) {
  for (const std::size_t threads : {1, 0}) {
    HostDevice device;
    if (threads == 0) device.share_short_loops();
    for (const std::size_t m : {1, 2, 3, 4})
      for (const std::size_t n : {1, 7, 8, 65, 1500})
        for (const std::size_t k : {1, 3, 33, 100})
          for (const bool transposed : {false, true})
            for (const bool accumulate : {false, true}) {
              const std::size_t lda = k + 1, ldb = (transposed ? k : n) + 2, ldc = n + 3;
              const auto a = numbers<T>(m * lda, 1), b = numbers<T>((transposed ? n : k) * ldb, 2), bias = numbers<T>(n, 3);
              auto c = numbers<T>(m * ldc, 4);
              const auto before = c;
              kernels::matmul<T, T>(device, kernels::Transpose::no, transposed ? kernels::Transpose::yes : kernels::Transpose::no,
                                    m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, accumulate,
                                    accumulate ? nullptr : bias.data());
              double worst = 0;
              for (std::size_t row = 0; row < m; ++row)
                for (std::size_t j = 0; j < ldc; ++j) {
                  double sum = j >= n || accumulate ? number(before[row * ldc + j]) : number(bias[j]);
                  for (std::size_t i = 0; i < k && j < n; ++i)
                    sum += number(a[row * lda + i]) * number(transposed ? b[j * ldb + i] : b[i * ldb + j]);
                  worst = std::max(worst, std::abs(number(c[row * ldc + j]) - sum) / (1 + std::abs(sum)));
                }
              CHECK(worst <= tolerance);
            }
  }
}

}  // namespace

TEST_CASE("rows see the keys of their sequence up to themselves") {
  for (const std::size_t window : {0, 1, 6}) {
    check_attention<double>(4, 2, 8, window, 1e-13);
    check_attention<double>(3, 3, 5, window, 1e-13);
    check_attention<float>(8, 2, 64, window, 2e-6);
    check_attention<float>(2, 1, 20, window, 2e-6);
    check_attention<bfloat16>(4, 4, 16, window, 2e-2);
    check_attention<float16>(4, 4, 36, window, 2e-3);
  }
}

TEST_CASE("products of few rows are those of plain loops") {
  check_product<double>(1e-13);
  check_product<float>(1e-5);
  check_product<bfloat16>(1e-2);
  check_product<float16>(2e-3);
}
