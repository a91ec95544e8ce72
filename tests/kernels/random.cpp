// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/normal_quantile.hpp weft/kernels/detail/philox_lanes.hpp
#include <weft/kernels/detail/normal_quantile.hpp>
#include <weft/kernels/detail/philox_lanes.hpp>
#include <weft/kernels/random.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

TEST_CASE_TEMPLATE("a shard draws its part of the whole tensor's numbers, bit for bit", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t rows = 20, columns = 51;
  for (const int kind : {0, 1, 2}) {
    const auto draw = [&](std::size_t r, std::size_t c, std::size_t first_row, std::size_t first_column) {
      std::vector<T> out(r * c);
      if (kind == 0) kernels::initialise_normal<T>(device, r, c, out.data(), 42, first_row, first_column, columns, 1.0, 0.5);
      if (kind == 1) kernels::initialise_uniform<T>(device, r, c, out.data(), 42, first_row, first_column, columns, -1.0, 3.0);
      if (kind == 2) kernels::initialise_constant<T>(device, r, c, out.data(), 42, first_row, first_column, columns, 0.5);
      return out;
    };
    const auto whole = draw(rows, columns, 0, 0), shard = draw(7, 13, 5, 30);
    for (std::size_t r = 0; r < 7; ++r)
      for (std::size_t c = 0; c < 13; ++c) CHECK(double(shard[r * 13 + c]) == double(whole[(r + 5) * columns + c + 30]));
  }
}

TEST_CASE("normal and uniform numbers have their moments") {
  DefaultDevice device;
  const std::size_t n = 200000;
  std::vector<float> x(n);
  const auto moments = [&] {
    double mean = 0, square = 0;
    for (const float v : x) mean += double(v) / double(n);
    for (const float v : x) square += (double(v) - mean) * (double(v) - mean) / double(n);
    return std::array<double, 2>{mean, square};
  };
  kernels::initialise_normal<float>(device, 1, n, x.data(), 7, 0, 0, n, 3.0, 2.0);
  CHECK(moments()[0] == doctest::Approx(3).epsilon(0.01));
  CHECK(moments()[1] == doctest::Approx(4).epsilon(0.02));
  kernels::initialise_uniform<float>(device, 1, n, x.data(), 7, 0, 0, n, -1.0, 3.0);
  CHECK(moments()[0] == doctest::Approx(1).epsilon(0.01));
  CHECK(moments()[1] == doctest::Approx(16.0 / 12).epsilon(0.02));
}

TEST_CASE_TEMPLATE("dropout follows the global index, keeps the mean, and adds a residual", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t rows = 50, columns = 603;
  const std::vector<T> x(rows * columns, to<T>(1)), residual(rows * columns, to<T>(0.5));
  std::vector<T> whole(rows * columns), shard(9 * 31);
  kernels::dropout<T>(device, rows, columns, x.data(), whole.data(), 0.25, 99, 0, 0, columns);
  double sum = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool kept = weft::Philox::uniform(99, i) >= 0.25f;
    CHECK(double(whole[i]) == (kept ? double(to<T>(4.0 / 3)) : 0));
    sum += double(whole[i]);
  }
  CHECK(sum / double(whole.size()) == doctest::Approx(1).epsilon(0.03));
  const std::vector<T> part(9 * 31, to<T>(1)), half(9 * 31, to<T>(0.5));
  kernels::dropout<T>(device, 9, 31, part.data(), shard.data(), 0.25, 99, 11, 101, columns, half.data());
  for (std::size_t r = 0; r < 9; ++r)
    for (std::size_t c = 0; c < 31; ++c) {
      const bool kept = double(whole[(r + 11) * columns + c + 101]) != 0;
      CHECK(double(shard[r * 31 + c]) ==
            double(to<T>(double(accumulate_t<T>(0.5) + (kept ? accumulate_t<T>(4.0 / 3) : accumulate_t<T>(0))))));
    }
  kernels::dropout<T>(device, rows, columns, x.data(), whole.data(), 0.0, 99, 0, 0, columns);
  CHECK(same_bits(whole, x));
}

TEST_CASE("a register of draws is Philox, bit for bit") {
  for (const std::uint64_t first : {std::uint64_t(0), std::uint64_t(7), (std::uint64_t(1) << 32) - 3, std::uint64_t(1) << 40}) {
    std::uint32_t words[kernels::detail::philox_block];
    kernels::detail::philox_words(0x123456789abcdef0, first, words);
    for (std::size_t i = 0; i < kernels::detail::philox_block; ++i)
      CHECK(words[i] == weft::Philox::draw(0x123456789abcdef0, first + i / 4).word[i % 4]);
  }
}

TEST_CASE("quantiles of the normal distribution are the inverse of its distribution function") {
  using kernels::detail::normal_quantile;
  CHECK(normal_quantile(0.5) == 0);
  for (const double p : {1e-12, 1e-3, 0.02425, 0.1, 0.4, 0.7, 0.975, 0.9999})
    CHECK(std::abs(0.5 * std::erfc(-normal_quantile(p) / std::sqrt(2.0)) / p - 1) < 1e-7);
  CHECK(normal_quantile(0) < -8);
  CHECK(normal_quantile(1) > 8);
  CHECK((std::isfinite(normal_quantile(0)) && std::isfinite(normal_quantile(1))));
}
