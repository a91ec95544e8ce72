// SPDX-License-Identifier: Apache-2.0
#pragma once
// Discrete Fourier transforms along one dim of an array [outer, extent, inner] of complex numbers, pairs of a real and an
// imaginary part, or of real ones. Stockham's autosort algorithm with radix 4 and any prime factors: n log n steps for a product
// of small factors, n p for a prime factor p. A real line of an even number is transformed as half as many complex numbers, pairs
// of neighbours. Lines are transformed in lanes, several at once, in accumulate_t, and rounded once.
//
//   kernels::fourier<float>(device, {.outer = outer, .n = n, .inner = inner}, x, y);

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/transpose.hpp>

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

/// root[t] = exp(∓2πi t / n) for t < n, of every `step`-th one.
template <class A>
struct FourierRoots {
  const Complex<A>* root;
  std::size_t step;
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION Complex<V> at(std::size_t t) const {
    return {V(root[t * step].re), V(root[t * step].im)};
  }
};

/// One pass over V::size lines: `length` numbers that lie `stride` apart, of all n. Radix 0 is any `radix`.
template <class V, std::size_t Radix, bool Inverse, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void fourier_pass(std::size_t n, std::size_t length, std::size_t stride, std::size_t radix,
                                         FourierRoots<A> roots, const A* x, A* y) {
  using C = Complex<V>;
  const std::size_t part = length / radix, apart = stride * part;
  for (std::size_t p = 0; p < part; ++p) {
    const auto turn = [&](std::size_t k) { return roots.template at<V>(p * k * stride); };
    const std::size_t from = stride * p, to = stride * radix * p;
    if constexpr (Radix == 2) {
      const C first = turn(1);
      for (std::size_t q = 0; q < stride; ++q) {
        const C a = load_lines<V>(x, from + q), b = load_lines<V>(x, from + q + apart);
        store_lines(a + b, y, to + q);
        store_lines((a - b) * first, y, to + q + stride);
      }
    } else if constexpr (Radix == 4) {
      const C once = turn(1), twice = turn(2), thrice = turn(3);
      for (std::size_t q = 0; q < stride; ++q) {
        const C a = load_lines<V>(x, from + q), b = load_lines<V>(x, from + q + apart),
                c = load_lines<V>(x, from + q + 2 * apart), d = load_lines<V>(x, from + q + 3 * apart);
        const C even = a + c, odd = b + d, first = a - c, across = b - d;
        const C turned = Inverse ? C{-across.im, across.re} : C{across.im, -across.re};
        store_lines(even + odd, y, to + q);
        store_lines((first + turned) * once, y, to + q + stride);
        store_lines((even - odd) * twice, y, to + q + 2 * stride);
        store_lines((first - turned) * thrice, y, to + q + 3 * stride);
      }
    } else {
      for (std::size_t q = 0; q < stride; ++q)
        for (std::size_t k = 0; k < radix; ++k) {
          C sum = load_lines<V>(x, from + q);
          for (std::size_t j = 1; j < radix; ++j)
            sum = sum + load_lines<V>(x, from + q + j * apart) * roots.template at<V>(j * k % radix * (n / radix));
          store_lines(sum * turn(k), y, to + q + k * stride);
        }
    }
  }
}
/// The transform of n numbers of V::size lines in a, with b for the passes between. Returns a or b, where the result lies.
template <class V, bool Inverse, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION A* fourier_lines(std::size_t n, const FourierFactors& factors, FourierRoots<A> roots, A* a, A* b) {
  std::size_t length = n, stride = 1;
  for (std::size_t f = 0; f < factors.count; ++f) {
    const std::size_t radix = factors.of[f];
    if (radix == 4) fourier_pass<V, 4, Inverse>(n, length, stride, radix, roots, a, b);
    else if (radix == 2) fourier_pass<V, 2, Inverse>(n, length, stride, radix, roots, a, b);
    else fourier_pass<V, 0, Inverse>(n, length, stride, radix, roots, a, b);
    length /= radix;
    stride *= radix;
    A* const other = a;
    a = b;
    b = other;
  }
  return a;
}

/// The places of up to V::size lines in memory: number k of a line, a real one or a pair, is at line + k apart.
template <class V, class T>
struct LinesInMemory {
  T* line[V::size];
  std::size_t count, width, apart;  ///< of lines; words of a number
  bool adjacent;                    ///< the number of a line is followed by that of the next line, of V::size
  bool rows;                        ///< the numbers of a line are adjacent, and V::size lines lie `next` apart
  std::size_t next;

  /// Calls f(lane, place) for number k of each line.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each(std::size_t k, const F& f) const {
    for (std::size_t lane = 0; lane < count; ++lane) f(lane, line[lane] + k * apart);
  }
};
/// Whether registers of T are moved as they are, and squares of them transposed.
template <class V, class T>
inline constexpr bool moves_registers = V::size > 1 && std::is_same_v<std::remove_const_t<T>, typename V::value_type>;
#if WEFT_COMPILER_VECTORS
template <class V, class T>
inline constexpr bool moves_squares = moves_registers<V, T> && sizeof(T) == 4 && V::size == square_words;
#endif

/// a[w, lane] = word w of each line, for the first `words`; 0 in lanes beyond the last line.
template <class V, class T, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void load_words(const LinesInMemory<V, const T>& from, std::size_t words, A* a) {
  std::size_t k = 0;
#if WEFT_COMPILER_VECTORS
  if constexpr (moves_squares<V, T>)
    if (from.rows) {
      std::size_t w = 0;
      for (; w + V::size <= words; w += V::size)
        transpose_square([&](std::size_t lane) { return (WordRegister)V::load(from.line[lane] + w).v; }, a + w * V::size,
                         V::size);
      k = w / from.width;
    }
  if constexpr (moves_registers<V, T>)
    if (from.adjacent)
      for (; k < words / from.width; ++k) {
        const T* const p = from.line[0] + k * from.apart;
        if (from.width == 1) {
          V::load(p).store(a + k * V::size);
        } else {
          const std::pair<V, V> pair = split_pairs<V>(p);
          store_lines<V>({pair.first, pair.second}, a, k);
        }
      }
#endif
  for (; k < words / from.width; ++k)
    for (std::size_t part = 0; part < from.width; ++part) {
      A* const to = a + (k * from.width + part) * V::size;
      if (from.count < V::size) V(A(0)).store(to);
      from.each(k, [=](std::size_t lane, const T* p) { to[lane] = A(p[part]); });
    }
}
/// The reverse.
template <class V, class T, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void store_words(const A* z, std::size_t words, const LinesInMemory<V, T>& to) {
  std::size_t k = 0;
#if WEFT_COMPILER_VECTORS
  if constexpr (moves_squares<V, T>)
    if (to.rows) {
      std::size_t w = 0;
      for (; w + V::size <= words; w += V::size)
        transpose_square([&](std::size_t i) { return (WordRegister)V::load(z + (w + i) * V::size).v; }, to.line[0] + w, to.next);
      k = w / to.width;
    }
  if constexpr (moves_registers<V, T>)
    if (to.adjacent)
      for (; k < words / to.width; ++k) {
        T* const p = to.line[0] + k * to.apart;
        if (to.width == 1) {
          V::load(z + k * V::size).store(p);
        } else {
          const Complex<V> pair = load_lines<V>(z, k);
          join_pairs(pair.re, pair.im, p);
        }
      }
#endif
  for (; k < words / to.width; ++k)
    for (std::size_t part = 0; part < to.width; ++part) {
      const A* const from = z + (k * to.width + part) * V::size;
      to.each(k, [=](std::size_t lane, T* p) { p[part] = T(from[lane]); });
    }
}
/// Real numbers of lines as pairs, in place.
template <class V, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void pair_with_zeros(std::size_t n, A* a) {
  for (std::size_t k = n; k-- > 0;) {
    const V re = V::load(a + k * V::size);
    store_lines<V>({re, V(A(0))}, a, k);
  }
}
template <class V>
KOKKOS_FORCEINLINE_FUNCTION Complex<V> conjugate(Complex<V> z) {
  return {z.re, -z.im};
}
/// i z.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION Complex<V> turned_left(Complex<V> z) {
  return {-z.im, z.re};
}
template <class V>
KOKKOS_FORCEINLINE_FUNCTION Complex<V> times_number(typename V::value_type factor, Complex<V> z) {
  return {V(factor) * z.re, V(factor) * z.im};
}
/// The pairs after the first n / 2 + 1 ones of a half line: their conjugates, or 0 of half_alone. The first pair, and of an even
/// number the middle one, is its own conjugate.
template <class V, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void complete_half(std::size_t n, bool alone, A* a) {
  const auto real = [a](std::size_t k) { store_lines<V>({load_lines<V>(a, k).re, V(A(0))}, a, k); };
  if (n == 0) return;
  real(0);
  if (n % 2 == 0) real(n / 2);
  for (std::size_t k = n / 2 + 1; k < n; ++k) {
    const Complex<V> zero{V(A(0)), V(A(0))};
    store_lines<V>(alone ? zero : conjugate(load_lines<V>(a, n - k)), a, k);
  }
}
/// From the half line of pairs x[0 .. m], m = n / 2, the m complex numbers whose transform has the 2 m real numbers of the line
/// as its parts: z[k] = (x[k] + x'[m - k]) + i root[k] (x[k] - x'[m - k]), x' the conjugate.
template <class V, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void pack_half(std::size_t m, bool alone, FourierRoots<A> roots, A* a) {
  const Complex<V> first = load_lines<V>(a, 0), last = load_lines<V>(a, m);
  // Pairs without their conjugates count half: only the real part of the result is used.
  const A weight = alone ? A(0.5) : A(1);
  store_lines<V>({first.re + last.re, first.re - last.re}, a, 0);
  for (std::size_t k = 1; 2 * k <= m; ++k) {
    const Complex<V> low = times_number<V>(weight, load_lines<V>(a, k)), high = times_number<V>(weight, load_lines<V>(a, m - k));
    const auto packed = [&](Complex<V> x, Complex<V> other, std::size_t at) {
      const Complex<V> mirrored = conjugate(other);
      store_lines<V>((x + mirrored) + turned_left((x - mirrored) * roots.template at<V>(at)), a, at);
    };
    packed(low, high, k);
    if (2 * k != m) packed(high, low, m - k);
  }
}
/// The pair k of the half line of 2 m real numbers, from the transform z of m complex ones: (z[k] + z'[m - k]) / 2 - i root[k]
/// (z[k] - z'[m - k]) / 2.
template <class V, class A = typename V::value_type>
KOKKOS_FORCEINLINE_FUNCTION Complex<V> unpacked_half(std::size_t m, std::size_t k, FourierRoots<A> roots, const A* z) {
  const Complex<V> x = load_lines<V>(z, k == m ? 0 : k), mirrored = conjugate(load_lines<V>(z, k == 0 ? 0 : m - k));
  return times_number<V>(A(0.5), (x + mirrored) - turned_left((x - mirrored) * roots.template at<V>(k)));
}

/// The numbers of the result, as they are stored, from the transform z of `numbers` complex ones; z and `out` may be one array,
/// unless real numbers were packed.
template <class V, class A = typename V::value_type>
KOKKOS_INLINE_FUNCTION void finish_lines(const FourierShape& s, bool packed, std::size_t numbers, FourierRoots<A> roots,
                                         const A* z, A* out) {
  const std::size_t after = FourierShape::extent(s.to, s.n);
  const A once = A(s.scale), twice = A(2 * s.scale);
  if (s.to == FourierLine::real) {
    for (std::size_t k = 0; k < after; ++k) (V(once) * V::load(z + (packed ? k : 2 * k) * V::size)).store(out + k * V::size);
    return;
  }
  for (std::size_t k = 0; k < after; ++k) {
    const A scale = s.to == FourierLine::half_counted && k != 0 && 2 * k != s.n ? twice : once;
    const Complex<V> pair = packed ? unpacked_half<V>(numbers, k, roots, z) : load_lines<V>(z, k);
    store_lines<V>(times_number<V>(scale, pair), out, k);
  }
}

}  // namespace detail

/// y = scale times the transform of each line of x along the dim.
template <class T, class Exec>
void fourier(Device<Exec>& device, const FourierShape& s, const T* x, T* y) {
  using A = accumulate_t<T>;
  using V = detail::lanes_for<Exec, A>;
  if (s.n == 0 || s.outer * s.inner == 0) return;
  const std::size_t n = s.n, inner = s.inner;
  // Groups of lines that lie side by side, and behind them groups of the lines that are left of each outer index.
  const std::size_t rest = inner % V::size, side_by_side = s.outer * (inner / V::size), left = s.outer * rest,
                    groups = side_by_side + (left + V::size - 1) / V::size;
  const bool real_in = s.from == FourierLine::real, real_out = s.to == FourierLine::real;
  const bool packed = n % 2 == 0 && (real_in ? FourierShape::is_half(s.to) : real_out && FourierShape::is_half(s.from));
  const std::size_t numbers = packed ? n / 2 : n;  // that are transformed
  const detail::FourierFactors factors(numbers);
  // Workers take groups of lines in turn, each with memory for two of them.
  std::size_t workers = 16384;
  if constexpr (weft::detail::on_host<Exec>) workers = std::size_t(detail::threads_of(device.exec()));
  workers = std::min(workers, groups);
  const std::size_t size = 2 * V::size * (numbers + 1);
  const weft::detail::Buffer memory = device.allocate((2 * workers * size + 2 * n) * sizeof(A));
  A* const work = static_cast<A*>(memory.get());
  auto* const root = reinterpret_cast<detail::Complex<A>*>(work + 2 * workers * size);
  const double turn = (s.inverse ? 2 : -2) * 3.14159265358979323846 / double(n);
  detail::for_each(
      device, {"fourier", 2 * n * sizeof(A)}, n, KOKKOS_LAMBDA(std::size_t t) {
        root[t] = {A(Kokkos::cos(turn * double(t))), A(Kokkos::sin(turn * double(t)))};
      });
  const std::size_t pair_in = real_in ? 1 : 2, pair_out = real_out ? 1 : 2, before = FourierShape::extent(s.from, n),
                    after = FourierShape::extent(s.to, n);
  const detail::Traffic traffic{"fourier", s.outer * inner * (before * pair_in + after * pair_out) * sizeof(T)};
  detail::for_each(
      device, traffic, workers, KOKKOS_LAMBDA(std::size_t worker) {
        const detail::FourierRoots<A> all{root, 1}, roots{root, n / numbers};
        const auto place = [&](std::size_t line, std::size_t extent) { return line / inner * extent * inner + line % inner; };
        for (std::size_t group = worker; group < groups; group += workers) {
          A *const a = work + 2 * worker * size, *const b = a + size;
          const bool adjacent = group < side_by_side;
          const std::size_t first = (adjacent ? group : group - side_by_side) * V::size,
                            here = adjacent || left - first > V::size ? V::size : left - first;
          const auto line = [&](std::size_t lane) {
            const std::size_t i = first + lane;
            return adjacent ? i / (inner - rest) * inner + i % (inner - rest) : i / rest * inner + inner - rest + i % rest;
          };
          const bool rows = inner == 1 && here == V::size;
          detail::LinesInMemory<V, const T> from{{}, here, pair_in, inner * pair_in, adjacent, rows, before * pair_in};
          detail::LinesInMemory<V, T> to{{}, here, pair_out, inner * pair_out, adjacent, rows, after * pair_out};
          for (std::size_t lane = 0; lane < here; ++lane) {
            from.line[lane] = x + place(line(lane), before) * pair_in;
            to.line[lane] = y + place(line(lane), after) * pair_out;
          }
          const bool alone = s.from == FourierLine::half_alone;
          detail::load_words<V>(from, before * pair_in, a);
          if (real_in && !packed) detail::pair_with_zeros<V>(n, a);
          if (FourierShape::is_half(s.from) && packed) detail::pack_half<V>(numbers, alone, all, a);
          if (FourierShape::is_half(s.from) && !packed) detail::complete_half<V>(n, alone, a);
          const A* const z = s.inverse ? detail::fourier_lines<V, true>(numbers, factors, roots, a, b)
                                       : detail::fourier_lines<V, false>(numbers, factors, roots, a, b);
          A* const out = z == a ? b : a;
          detail::finish_lines<V>(s, packed, numbers, all, z, out);
          detail::store_words<V>(out, after * pair_out, to);
        }
      });
}

}  // namespace weft::kernels
