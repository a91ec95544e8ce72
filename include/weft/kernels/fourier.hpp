// SPDX-License-Identifier: Apache-2.0
#pragma once
// Discrete Fourier transforms along one dim of an array [outer, extent, inner] of complex numbers, pairs of a real and an
// imaginary part, or of real ones. Stockham's autosort algorithm with radix 4 and any prime factors: n log n steps for a product
// of small factors, n p for a prime factor p. A line is transformed in accumulate_t and rounded once.
//
//   kernels::fourier<float>(device, {.outer = outer, .n = n, .inner = inner}, x, y);

#include <algorithm>
#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// The numbers of a line in memory.
enum class FourierLine {
  complex,       ///< n pairs
  real,          ///< n numbers; of a result, its real part
  half,          ///< the first n / 2 + 1 pairs, of which the others are the conjugates
  half_alone,    ///< the same, of an operand whose other pairs are 0
  half_counted,  ///< the same, of a result: each pair times the number of pairs of the whole line that it stands for, 1 or 2
};

struct FourierShape {
  std::size_t outer = 1, n = 1, inner = 1;
  FourierLine from = FourierLine::complex, to = FourierLine::complex;
  bool inverse = false;  ///< exp(+2πi jk / n) in place of exp(-2πi jk / n)
  double scale = 1;

  static constexpr bool is_half(FourierLine line) { return line != FourierLine::complex && line != FourierLine::real; }
  /// Numbers along the dim, a pair counted as one.
  static constexpr std::size_t extent(FourierLine line, std::size_t n) { return is_half(line) ? n / 2 + 1 : n; }
};

namespace detail {

template <class A>
struct Complex {
  A re, im;
  KOKKOS_FORCEINLINE_FUNCTION friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  KOKKOS_FORCEINLINE_FUNCTION friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  KOKKOS_FORCEINLINE_FUNCTION friend Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

/// The factors of n: 4, then primes in ascending order.
struct FourierFactors {
  std::size_t count = 0, of[64] = {};
  explicit FourierFactors(std::size_t n) {
    for (; n % 4 == 0 && n != 0; n /= 4) of[count++] = 4;
    for (std::size_t p = 2; n > 1; ++p) {
      if (p * p > n) p = n;
      for (; n % p == 0; n /= p) of[count++] = p;
    }
  }
};

/// One pass: `length` numbers in lines that lie `stride` apart, of all n; root[t] = exp(∓2πi t / n).
template <class A>
KOKKOS_INLINE_FUNCTION void fourier_pass(std::size_t n, std::size_t length, std::size_t stride, std::size_t radix, bool inverse,
                                         const Complex<A>* root, const Complex<A>* x, Complex<A>* y) {
  const std::size_t part = length / radix;
  for (std::size_t p = 0; p < part; ++p)
    for (std::size_t q = 0; q < stride; ++q) {
      const Complex<A>* from = x + q + stride * p;
      Complex<A>* to = y + q + stride * radix * p;
      const std::size_t apart = stride * part;
      if (radix == 2) {
        const Complex<A> a = from[0], b = from[apart];
        to[0] = a + b;
        to[stride] = (a - b) * root[p * stride];
      } else if (radix == 4) {
        const Complex<A> a = from[0], b = from[apart], c = from[2 * apart], d = from[3 * apart];
        const Complex<A> even = a + c, odd = b + d, first = a - c, across = b - d;
        const Complex<A> turned = inverse ? Complex<A>{-across.im, across.re} : Complex<A>{across.im, -across.re};
        to[0] = even + odd;
        to[stride] = (first + turned) * root[p * stride];
        to[2 * stride] = (even - odd) * root[2 * p * stride];
        to[3 * stride] = (first - turned) * root[3 * p * stride];
      } else {
        for (std::size_t k = 0; k < radix; ++k) {
          Complex<A> sum = from[0];
          for (std::size_t j = 1; j < radix; ++j) sum = sum + from[j * apart] * root[j * k % radix * (n / radix)];
          to[k * stride] = sum * root[p * k * stride];
        }
      }
    }
}

/// Element k of a line whose numbers lie `stride` apart.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION Complex<A> fourier_load(const FourierShape& s, const T* x, std::size_t k) {
  if (s.from == FourierLine::real) return {A(x[k * s.inner]), A(0)};
  const bool beyond = s.from != FourierLine::complex && k > s.n / 2;
  if (beyond && s.from == FourierLine::half_alone) return {A(0), A(0)};
  const T* pair = x + 2 * s.inner * (beyond ? s.n - k : k);
  const A im = A(pair[1]);
  // The first pair, and of an even number the middle one, is its own conjugate.
  if (s.from == FourierLine::half && (k == 0 || 2 * k == s.n)) return {A(pair[0]), A(0)};
  return {A(pair[0]), beyond ? -im : im};
}
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION void fourier_store(const FourierShape& s, Complex<A> value, std::size_t k, T* y) {
  const bool twice = s.to == FourierLine::half_counted && k != 0 && 2 * k != s.n;
  const A scale = A(twice ? 2 * s.scale : s.scale);
  if (s.to == FourierLine::real) {
    y[k * s.inner] = T(scale * value.re);
  } else {
    y[2 * k * s.inner] = T(scale * value.re);
    y[2 * k * s.inner + 1] = T(scale * value.im);
  }
}

}  // namespace detail

/// y = scale times the transform of each line of x along the dim.
template <class T, class Exec>
void fourier(Device<Exec>& device, const FourierShape& s, const T* x, T* y) {
  using A = accumulate_t<T>;
  using C = detail::Complex<A>;
  const std::size_t n = s.n, lines = s.outer * s.inner;
  if (n == 0 || lines == 0) return;
  const detail::FourierFactors factors(n);
  // Workers take lines in turn, each with memory for two of them.
  constexpr std::size_t most = weft::detail::on_host<Exec> ? 256 : 16384;
  const std::size_t workers = std::min(lines, most);
  const weft::detail::Buffer memory = device.allocate((1 + 2 * workers) * n * sizeof(C));
  C* const root = static_cast<C*>(memory.get());
  C* const work = root + n;
  const double turn = (s.inverse ? 2 : -2) * 3.14159265358979323846 / double(n);
  detail::for_each(
      device, {"fourier", n * sizeof(C)}, n, KOKKOS_LAMBDA(std::size_t t) {
        root[t] = {A(Kokkos::cos(turn * double(t))), A(Kokkos::sin(turn * double(t)))};
      });
  const std::size_t width_in = (s.from == FourierLine::real ? 1 : 2) * s.inner,
                    width_out = (s.to == FourierLine::real ? 1 : 2) * s.inner, before = FourierShape::extent(s.from, n),
                    after = FourierShape::extent(s.to, n), pair_in = width_in / s.inner, pair_out = width_out / s.inner;
  detail::for_each(
      device, {"fourier", lines * (before * pair_in + after * pair_out) * sizeof(T)}, workers, KOKKOS_LAMBDA(std::size_t worker) {
        C *a = work + worker * 2 * n, *b = a + n;
        for (std::size_t line = worker; line < lines; line += workers) {
          const std::size_t o = line / s.inner, i = line % s.inner;
          const T* from = x + o * before * width_in + i * pair_in;
          for (std::size_t k = 0; k < n; ++k) a[k] = detail::fourier_load<A>(s, from, k);
          std::size_t length = n, stride = 1;
          for (std::size_t f = 0; f < factors.count; ++f) {
            detail::fourier_pass(n, length, stride, factors.of[f], s.inverse, root, a, b);
            length /= factors.of[f];
            stride *= factors.of[f];
            C* const other = a;
            a = b;
            b = other;
          }
          T* to = y + o * after * width_out + i * pair_out;
          for (std::size_t k = 0; k < after; ++k) detail::fourier_store<A>(s, a[k], k, to);
          a = work + worker * 2 * n;
          b = a + n;
        }
      });
}

}  // namespace weft::kernels
