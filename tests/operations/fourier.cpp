// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/fourier.hpp weft/kernels/fourier.hpp
// Fourier transforms: values against the sum that defines them for many lengths, several dims, the way back, derivatives, one
// rank over dp and with channels that tp cuts, and what is refused.

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/kernels/fourier.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::difference;
using weft_test::Exec;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

using Numbers = std::vector<double>;
constexpr double pi = 3.14159265358979323846;

// The transform along the middle dim of [outer, n, inner, 2], by its definition.
Numbers defined(const Numbers& z, std::size_t outer, std::size_t n, std::size_t inner, bool inverse) {
  Numbers out(z.size());
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < inner; ++i) {
        std::complex<double> sum = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const std::size_t at = 2 * ((o * n + j) * inner + i);
          sum += std::complex<double>(z[at], z[at + 1]) *
                 std::polar(inverse ? 1.0 / double(n) : 1.0, (inverse ? 2 : -2) * pi * double(j * k % n) / double(n));
        }
        const std::size_t to = 2 * ((o * n + k) * inner + i);
        out[to] = sum.real();
        out[to + 1] = sum.imag();
      }
  return out;
}
// Real numbers as pairs, and the first pairs of each line.
Numbers paired(const Numbers& x) {
  Numbers out;
  for (const double value : x) out.insert(out.end(), {value, 0.0});
  return out;
}
Numbers first_half(const Numbers& z, std::size_t outer, std::size_t n, std::size_t inner) {
  Numbers out;
  for (std::size_t o = 0; o < outer; ++o)
    out.insert(out.end(), z.begin() + std::ptrdiff_t(o * n * inner * 2),
               z.begin() + std::ptrdiff_t((o * n + n / 2 + 1) * inner * 2));
  return out;
}

template <class T>
void check_length(std::size_t n, std::size_t outer, std::size_t inner, double tolerance) {
  DefaultDevice device;
  CAPTURE(n);
  const Shape complex{outer, n, inner, 2}, real{outer, n, inner};
  const auto z = tensor_of<T>(device, complex, weft_test::waves(complex.size())),
             x = tensor_of<T>(device, real, weft_test::waves(real.size()));
  CHECK(difference(numbers_of(fft<1>(z)), defined(numbers_of(z), outer, n, inner, false)) < tolerance);
  CHECK(difference(numbers_of(ifft<1>(z)), defined(numbers_of(z), outer, n, inner, true)) < tolerance);
  const auto half = rfft<1>(x);
  CHECK(half.shape() == Shape{outer, n / 2 + 1, inner, 2});
  CHECK(difference(numbers_of(half), first_half(defined(paired(numbers_of(x)), outer, n, inner, false), outer, n, inner)) <
        tolerance);
  const auto back = irfft<1>(half, n);
  CHECK(back.shape() == real);
  CHECK(difference(numbers_of(back), numbers_of(x)) < tolerance);
}

}  // namespace

TEST_CASE("transforms against their definition") {
  for (std::size_t n = 1; n <= 36; ++n) check_length<double>(n, 2, 3, 1e-12);
  for (const std::size_t n : {64, 97, 120, 125, 143, 256}) check_length<double>(n, 3, 1, 1e-11);
  check_length<float>(48, 2, 5, 2e-5);
  // Lines side by side and one after the other, with a rest of lanes and of numbers.
  for (const std::size_t n : {1, 2, 6, 15, 32, 34}) {
    check_length<float>(n, 3, 37, 2e-5);
    check_length<float>(n, 41, 1, 2e-5);
    check_length<double>(n, 3, 21, 1e-12);
    check_length<double>(n, 21, 1, 1e-12);
  }
  check_length<bfloat16>(16, 2, 2, 0.1);
  check_length<double>(8, 20, 17, 1e-12);  // more lines than workers
}

TEST_CASE("several dims are one after the other") {
  DefaultDevice device;
  const auto x = tensor_of<double>(device, {2, 4, 6, 5}, weft_test::waves(240));
  const auto spectrum = rfft<1, 2, 3>(x);
  CHECK(spectrum.shape() == Shape{2, 4, 6, 3, 2});
  CHECK(difference(numbers_of(spectrum), numbers_of(fft<1>(fft<2>(rfft<3>(x))))) < 1e-12);
  CHECK(difference(numbers_of(irfft<1, 2, 3>(spectrum, 5)), numbers_of(x)) < 1e-13);
  CHECK(difference(numbers_of(ifft<1, 2>(fft<1, 2>(reshape(x, {2, 4, 15, 2})))), numbers_of(x)) < 1e-13);
  CHECK(difference(numbers_of(irfft<1, 2>(rfft<1, 2>(x), 6)), numbers_of(x)) < 1e-13);
}

TEST_CASE("images that take all transforms a few at a time have the bits of all at once") {
  DefaultDevice device;  // 256 KiB a thread hold 7 of the 300 spectra
  using X = Tensor<double, Exec>;
  const X x(device, {300, 4, 32, 32});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = std::sin(0.1 * double(i * i % 1009));
  const auto bits = [](const X& y) { return Numbers(y.data(), y.data() + y.size()); };
  CHECK(bits(rfft<1, 2, 3>(x)) == bits(fft<2>(fft<1>(rfft<3>(x)))));
  CHECK(bits(irfft<2, 3>(rfft<2, 3>(x), 32)) == bits(irfft<3>(ifft<2>(fft<2>(rfft<3>(x))), 32)));
}

TEST_CASE("imaginary parts that a real tensor does not have are ignored") {
  DefaultDevice device;
  Numbers numbers{1, 0, 2, 3, 4, 0}, more = numbers;
  more[1] = 7, more[5] = -2;  // of the first pair and of the middle one of four
  CHECK(numbers_of(irfft<0>(tensor_of<double>(device, {3, 2}, more), 4)) ==
        numbers_of(irfft<0>(tensor_of<double>(device, {3, 2}, numbers), 4)));
}

TEST_CASE("derivatives of transforms, on one rank and on two") {
  const auto everywhere = [](auto f, const Shape& shape) {
    weft_test::check_formula(f, shape);
    weft_test::check_over<Shard<dp, 0>>(f, shape);
    weft_test::check_cut<0, decltype(f)>(f, shape);
  };
  everywhere([](const auto& x) { return exp(fft<1>(x * x) * 0.3); }, {2, 6, 2});
  everywhere([](const auto& x) { return exp(ifft<1, 2>(x * x) * 2); }, {2, 3, 4, 2});
  everywhere([](const auto& x) { return exp(rfft<1>(x * x) * 0.3); }, {2, 6});
  everywhere([](const auto& x) { return exp(rfft<1, 2>(x * x) * 0.2); }, {2, 4, 5});
  everywhere([](const auto& x) { return exp(irfft<1>(x * x, 6) * 2); }, {2, 4, 2});
  everywhere([](const auto& x) { return exp(irfft<1, 2>(x * x, 5) * 2); }, {2, 4, 3, 2});
  // A field's spectrum times itself, and back.
  everywhere([](const auto& x) { return irfft<1>(square(rfft<1>(x)), 6) * x; }, {2, 6});
  weft_test::check_cut<1>([](const auto& x) { return irfft<2>(rfft<2>(x) * 2, 4) * x; }, {2, 4, 4});
}

TEST_CASE("terms of a sum are transformed as the sum") {
  using P = Tensor<float, Exec, Partial<tp>>;
  static_assert(std::is_same_v<decltype(rfft<1, 2>(std::declval<P>())), P>);
  static_assert(std::is_same_v<decltype(ifft<1>(std::declval<P>())), P>);
}

TEST_CASE("operands that are not transformed") {
  DefaultDevice device;
  const Tensor<float, Exec> x(device, {4, 6}), z(device, {4, 6, 2});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { fft<0>(x); }) == "weft: fft([4, 6]): expected a last dim of 2, the real and imaginary parts, behind dim 0");
  CHECK(refusal([&] { fft<2>(z); }) ==
        "weft: fft([4, 6, 2]): expected a last dim of 2, the real and imaginary parts, behind dim 2");
  CHECK(refusal([&] { irfft<1>(z, 8); }) == "weft: irfft([4, 6, 2]): dim 1 has 6 elements, and a transform of 8 takes 5");
  CHECK(refusal([&] { rfft<2>(x); }) == "weft: rfft([4, 6]): there is no dim 2");
  CHECK(refusal([&] {
          rfft<0>(Tensor<float, Exec>(device, {2, 1, 1, 1, 1, 1}));
        }) == "weft: rfft([2, 1, 1, 1, 1, 1]): the result would have more than 6 dims");
}
