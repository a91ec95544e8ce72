// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/matmul_half.hpp weft/kernels/detail/matmul_loops.hpp weft/kernels/detail/matmul_onednn.hpp
// covers: weft/kernels/detail/matmul_tiles.hpp weft/kernels/detail/onednn_room.hpp
#include <weft/kernels/detail/matmul_half.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>
#include <weft/kernels/detail/matmul_onednn.hpp>
#include <weft/kernels/detail/matmul_tiles.hpp>
#include <weft/kernels/detail/onednn_room.hpp>
#include <weft/kernels/matmul.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
using weft::kernels::Transpose;

namespace {

template <class T, class C>
void check_products(std::size_t m, std::size_t n, std::size_t k) {
  Devices devices;
  for (int flags = 0; flags < 16; ++flags) {
    const bool transpose_a = flags & 1, transpose_b = flags & 2, accumulate = flags & 4, with_bias = flags & 8;
    CAPTURE(transpose_a);
    CAPTURE(transpose_b);
    CAPTURE(accumulate);
    CAPTURE(with_bias);
    // Leading dims are wider than the rows: the values between rows must not change.
    const std::size_t lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 1, ldc = n + 2;
    const auto a = normal<T>((transpose_a ? k : m) * lda + 1, 1), b = normal<T>((transpose_b ? n : k) * ldb + 1, 2),
               bias = normal<T>(n, 3);
    auto c = normal<C>(m * ldc, 4);
    std::vector<double> reference = widen(c);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = (accumulate ? double(c[i * ldc + j]) : 0) + (with_bias ? double(bias[j]) : 0);
        for (std::size_t l = 0; l < k; ++l)
          sum += double(a[transpose_a ? l * lda + i : i * lda + l]) * double(b[transpose_b ? j * ldb + l : l * ldb + j]);
        reference[i * ldc + j] = sum;
      }
    auto again = c, loops = c;
    const auto flag = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
    weft::kernels::matmul<T, C>(devices.one, flag(transpose_a), flag(transpose_b), m, n, k, a.data(), lda, b.data(), ldb,
                                c.data(), ldc, accumulate, with_bias ? bias.data() : nullptr);
    check_close(c, reference);
    weft::kernels::matmul<T, C>(devices.all, flag(transpose_a), flag(transpose_b), m, n, k, a.data(), lda, b.data(), ldb,
                                again.data(), ldc, accumulate, with_bias ? bias.data() : nullptr);
    check_close(again, reference);
    weft::kernels::detail::matmul_loops(devices.one,
                                        {.transpose_a = transpose_a,
                                         .transpose_b = transpose_b,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .lda = lda,
                                         .ldb = ldb,
                                         .ldc = ldc,
                                         .accumulate = accumulate},
                                        a.data(), b.data(), loops.data(), with_bias ? bias.data() : nullptr);
    check_close(loops, reference);
  }
}

}  // namespace

TEST_CASE("products of all transpositions, with strides, sums and bias, are those of plain loops") {
  for (const auto& shape :
       std::vector<std::array<std::size_t, 3>>{{13, 37, 29}, {1, 1, 1}, {64, 48, 96}, {5, 130, 7}, {130, 3, 65}}) {
    const std::size_t m = shape[0], n = shape[1], k = shape[2];
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    check_products<float, float>(m, n, k);
    check_products<double, double>(m, n, k);
    check_products<bfloat16, bfloat16>(m, n, k);
    check_products<bfloat16, float>(m, n, k);
    check_products<float16, float16>(m, n, k);
    check_products<float16, float>(m, n, k);
  }
}

TEST_CASE("a product over nothing is zero or the bias") {
  DefaultDevice device;
  const std::vector<float> bias{1, 2, 3};
  std::vector<float> c(6, 7.f);
  weft::kernels::matmul<float, float>(device, Transpose::no, Transpose::no, 2, 3, 0, nullptr, 1, nullptr, 3, c.data(), 3, false,
                                      bias.data());
  CHECK(c == std::vector<float>{1, 2, 3, 1, 2, 3});
  weft::kernels::matmul<float, float>(device, Transpose::no, Transpose::no, 2, 3, 0, nullptr, 1, nullptr, 3, c.data(), 3);
  CHECK(c == std::vector<float>(6, 0.f));
}

TEST_CASE("too little memory for oneDNN's kernels is an error") {
  const weft::kernels::detail::OneDnnRoom room;
  CHECK_NOTHROW(room.require(std::size_t(1) << 20));
  for (const std::size_t more : {std::size_t(-1) / 4, std::size_t(-1)})
    CHECK_THROWS_WITH_AS(room.require(more), doctest::Contains("weft: out of memory: the host has no room for "),
                         weft::MemoryError);
}
