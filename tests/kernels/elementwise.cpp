// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/sum_rows.hpp weft/kernels/quantise.hpp
#include <weft/kernels/detail/sum_rows.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/quantise.hpp>

#include <bit>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

TEST_CASE_TEMPLATE("sums, products and casts of odd sizes", T, float, double, bfloat16, float16) {
  using A = accumulate_t<T>;
  DefaultDevice device;
  for (const std::size_t n : {1, 15, 16, 4097, 10000}) {
    const auto a = normal<T>(n, 1), b = normal<T>(n, 2);
    const auto wide = normal<A>(n, 3);
    std::vector<T> out(n + 1, to<T>(7));
    const auto check = [&](auto f) {
      std::vector<double> right(n);
      for (std::size_t i = 0; i < n; ++i) right[i] = double(to<T>(double(f(A(a[i]), A(b[i])))));
      for (std::size_t i = 0; i < n; ++i) CHECK(double(out[i]) == doctest::Approx(right[i]).epsilon(1e-6));
      CHECK(double(out[n]) == 7);
    };
    kernels::add<T>(device, n, a.data(), b.data(), out.data());
    check([](A x, A y) { return x + y; });
    kernels::multiply<T>(device, n, a.data(), b.data(), out.data());
    check([](A x, A y) { return x * y; });
    kernels::scale<T>(device, n, A(0.25), a.data(), out.data());
    check([](A x, A) { return x * A(0.25); });
    kernels::fill<T>(device, n, out.data(), to<T>(3));
    check([](A, A) { return A(3); });
    auto sum = wide;
    kernels::accumulate<T>(device, n, a.data(), sum.data());
    for (std::size_t i = 0; i < n; ++i) CHECK(sum[i] == wide[i] + A(a[i]));
    sum = wide;
    kernels::axpy<T>(device, n, A(2), a.data(), sum.data());
    for (std::size_t i = 0; i < n; ++i) CHECK(sum[i] == wide[i] + A(2) * A(a[i]));
  }
}

TEST_CASE("casts round to nearest even, and between float and double") {
  DefaultDevice device;
  const std::vector<float> x{1.f, 1.00390625f, 1.01171875f, -3.14159265f, 1e-3f, INFINITY, 0.f, 5e4f, 1.f,
                             2.f, 3.f,         4.f,         5.f,          6.f,   7.f,      8.f, NAN};
  std::vector<bfloat16> narrow(x.size());
  kernels::cast<float, bfloat16>(device, x.size(), x.data(), narrow.data());
  for (std::size_t i = 0; i + 1 < x.size(); ++i) CHECK(narrow[i].bits == bfloat16(x[i]).bits);
  CHECK(std::isnan(float(narrow.back())));
  std::vector<double> wide(x.size());
  kernels::cast<bfloat16, double>(device, x.size(), narrow.data(), wide.data());
  for (std::size_t i = 0; i + 1 < x.size(); ++i) CHECK(wide[i] == double(float(narrow[i])));
}

TEST_CASE("casts of float16 by the processor are those of the type itself") {
  DefaultDevice device;
  std::vector<float16> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = std::uint16_t(i);
  std::vector<float> wide(all.size());
  kernels::cast<float16, float>(device, all.size(), all.data(), wide.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    wrong += !(wide[i] == float(all[i]) || (std::isnan(wide[i]) && std::isnan(float(all[i]))));
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < 0x100000000ull; bits += 4051) x.push_back(std::bit_cast<float>(std::uint32_t(bits)));
  std::vector<float16> narrow(x.size());
  kernels::cast<float, float16>(device, x.size(), x.data(), narrow.data());
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += !(narrow[i].bits == float16(x[i]).bits || (std::isnan(x[i]) && std::isnan(float(narrow[i]))));
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("rows are added to and multiplied, columns summed", T, float, double, bfloat16) {
  using A = accumulate_t<T>;
  Devices devices;
  for (const std::size_t columns : {1, 37, 64, 150}) {
    const std::size_t rows = 301, ld = columns + 3;
    const auto x = normal<T>(rows * ld, 1), row = normal<T>(columns, 2);
    std::vector<double> right(columns, 1.5);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c) right[c] += double(x[r * ld + c]);
    std::vector<A> sums(columns, A(1.5)), one = sums;
    kernels::column_sums<T>(devices.all, rows, columns, x.data(), ld, sums.data(), true);
    kernels::column_sums<T>(devices.one, rows, columns, x.data(), ld, one.data(), true);
    CHECK(difference(sums, right) <= (std::is_same_v<T, double> ? 1e-12 : 3e-6));
    CHECK(same_bits(sums, one));
    kernels::column_sums<T>(devices.all, rows, columns, x.data(), ld, sums.data(), false);
    for (auto& value : right) value -= 1.5;
    CHECK(difference(sums, right) <= (std::is_same_v<T, double> ? 1e-12 : 3e-6));
    std::vector<T> out(5 * columns);
    kernels::add_row<T>(devices.all, 5, columns, x.data(), row.data(), out.data());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(double(out[i]) == double(to<T>(double(A(x[i]) + A(row[i % columns])))));
    kernels::multiply_row<T>(devices.all, 5, columns, x.data(), row.data(), out.data());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(double(out[i]) == double(to<T>(double(A(x[i]) * A(row[i % columns])))));
  }
}

TEST_CASE_TEMPLATE("8-bit integers are within half a step; a block that is not finite is NaN, one of tiny numbers zero", T, float,
                   double, bfloat16) {
  using A = accumulate_t<T>;
  DefaultDevice device;
  constexpr std::size_t block = kernels::quantised_block, n = 3 * block + 7;
  auto x = normal<T>(n, 1, 3);
  x[block + 3] = to<T>(INFINITY);
  std::fill_n(x.begin() + 2 * block, block, to<T>(1e-35));
  std::vector<std::int8_t> integers(n);
  std::vector<A> scales(kernels::quantised_blocks(n));
  std::vector<T> y(n);
  REQUIRE(scales.size() == 4);
  kernels::quantise(device, n, x.data(), integers.data(), scales.data());
  kernels::dequantise(device, n, integers.data(), scales.data(), y.data());
  for (std::size_t i = 0; i < n; ++i) {
    const A scale = scales[i / block];
    if (i / block == 1) CHECK(std::isnan(double(y[i])));
    else if (i / block == 2) CHECK(double(y[i]) == 0);
    else {
      CHECK(std::abs(double(integers[i]) * double(scale) - double(x[i])) <= 0.5001 * double(scale));
      CHECK(double(y[i]) == double(to<T>(double(A(integers[i]) * scale))));
    }
  }
  for (const std::size_t begin : {std::size_t(0), 3 * block}) {
    double largest = 0;
    for (std::size_t i = begin; i < std::min(n, begin + block); ++i) largest = std::max(largest, std::abs(double(x[i])));
    CHECK(double(scales[begin / block]) == doctest::Approx(largest / 127).epsilon(1e-6));
  }
}
