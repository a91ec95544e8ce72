// SPDX-License-Identifier: Apache-2.0
#pragma once
// Discrete Fourier transforms along one dim of an array [outer, extent, inner] of complex numbers, pairs of a real and an
// imaginary part, or of real ones. Stockham's autosort algorithm with radix 4 and any prime factors: n log n steps for a product
// of small factors, n p for a prime factor p. Lines are transformed in lanes, several at once, in accumulate_t, and rounded once.
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

/// Complex numbers of V::size lines: the real parts of all lines, then their imaginary parts, number by number.
template <class V, class A = typename V::value_type>
KOKKOS_FORCEINLINE_FUNCTION Complex<V> load_lines(const A* x, std::size_t i) {
  return {V::load(x + 2 * i * V::size), V::load(x + (2 * i + 1) * V::size)};
}
template <class V, class A = typename V::value_type>
KOKKOS_FORCEINLINE_FUNCTION void store_lines(Complex<V> value, A* y, std::size_t i) {
  value.re.store(y + 2 * i * V::size);
  value.im.store(y + (2 * i + 1) * V::size);
}

/// One pass over V::size lines: `length` numbers that lie `stride` apart, of all n; root[t] = exp(∓2πi t / n).
template <class V, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void fourier_pass(std::size_t n, std::size_t length, std::size_t stride, std::size_t radix, bool inverse,
                                         const Complex<A>* root, const A* x, A* y) {
  using C = Complex<V>;
  const std::size_t part = length / radix, apart = stride * part;
  const auto turn = [&](std::size_t t) { return C{V(root[t].re), V(root[t].im)}; };
  for (std::size_t p = 0; p < part; ++p)
    for (std::size_t q = 0; q < stride; ++q) {
      const std::size_t from = q + stride * p, to = q + stride * radix * p;
      if (radix == 2) {
        const C a = load_lines<V>(x, from), b = load_lines<V>(x, from + apart);
        store_lines(a + b, y, to);
        store_lines((a - b) * turn(p * stride), y, to + stride);
      } else if (radix == 4) {
        const C a = load_lines<V>(x, from), b = load_lines<V>(x, from + apart), c = load_lines<V>(x, from + 2 * apart),
                d = load_lines<V>(x, from + 3 * apart);
        const C even = a + c, odd = b + d, first = a - c, across = b - d;
        const C turned = inverse ? C{-across.im, across.re} : C{across.im, -across.re};
        store_lines(even + odd, y, to);
        store_lines((first + turned) * turn(p * stride), y, to + stride);
        store_lines((even - odd) * turn(2 * p * stride), y, to + 2 * stride);
        store_lines((first - turned) * turn(3 * p * stride), y, to + 3 * stride);
      } else {
        for (std::size_t k = 0; k < radix; ++k) {
          C sum = load_lines<V>(x, from);
          for (std::size_t j = 1; j < radix; ++j)
            sum = sum + load_lines<V>(x, from + j * apart) * turn(j * k % radix * (n / radix));
          store_lines(sum * turn(p * k * stride), y, to + k * stride);
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
  using V = detail::lanes_for<Exec, A>;
  const std::size_t n = s.n, lines = s.outer * s.inner, groups = (lines + V::size - 1) / V::size;
  if (n == 0 || lines == 0) return;
  const detail::FourierFactors factors(n);
  // Workers take groups of lines in turn, each with memory for two of them.
  std::size_t workers = 16384;
  if constexpr (weft::detail::on_host<Exec>) workers = std::size_t(detail::threads_of(device.exec()));
  workers = std::min(workers, groups);
  const std::size_t size = 2 * V::size * n;
  const weft::detail::Buffer memory = device.allocate((2 * workers * size + 2 * n) * sizeof(A));
  A* const work = static_cast<A*>(memory.get());
  auto* const root = reinterpret_cast<detail::Complex<A>*>(work + 2 * workers * size);
  const double turn = (s.inverse ? 2 : -2) * 3.14159265358979323846 / double(n);
  detail::for_each(
      device, {"fourier", 2 * n * sizeof(A)}, n, KOKKOS_LAMBDA(std::size_t t) {
        root[t] = {A(Kokkos::cos(turn * double(t))), A(Kokkos::sin(turn * double(t)))};
      });
  const std::size_t pair_in = s.from == FourierLine::real ? 1 : 2, pair_out = s.to == FourierLine::real ? 1 : 2,
                    before = FourierShape::extent(s.from, n), after = FourierShape::extent(s.to, n);
  detail::for_each(
      device, {"fourier", lines * (before * pair_in + after * pair_out) * sizeof(T)}, workers, KOKKOS_LAMBDA(std::size_t worker) {
        for (std::size_t group = worker; group < groups; group += workers) {
          A *a = work + 2 * worker * size, *b = a + size;
          const std::size_t first = group * V::size, here = lines - first < V::size ? lines - first : V::size;
          const T* from[V::size];
          T* to[V::size];
          for (std::size_t lane = 0; lane < V::size; ++lane) {
            const std::size_t line = first + (lane < here ? lane : 0);  // lanes beyond the last line repeat the first one
            from[lane] = x + (line / s.inner * before * s.inner + line % s.inner) * pair_in;
            to[lane] = y + (line / s.inner * after * s.inner + line % s.inner) * pair_out;
          }
          for (std::size_t k = 0; k < n; ++k)
            for (std::size_t lane = 0; lane < V::size; ++lane) {
              const detail::Complex<A> value = detail::fourier_load<A>(s, from[lane], k);
              a[2 * k * V::size + lane] = value.re;
              a[(2 * k + 1) * V::size + lane] = value.im;
            }
          std::size_t length = n, stride = 1;
          for (std::size_t f = 0; f < factors.count; ++f) {
            detail::fourier_pass<V>(n, length, stride, factors.of[f], s.inverse, root, a, b);
            length /= factors.of[f];
            stride *= factors.of[f];
            A* const other = a;
            a = b;
            b = other;
          }
          for (std::size_t k = 0; k < after; ++k)
            for (std::size_t lane = 0; lane < here; ++lane)
              detail::fourier_store<A>(s, {a[2 * k * V::size + lane], a[(2 * k + 1) * V::size + lane]}, k, to[lane]);
        }
      });
}

}  // namespace weft::kernels
