// SPDX-License-Identifier: Apache-2.0
#pragma once
// A vector of a few numbers, so that one source of a kernel works in every execution space: SIMD registers on hosts (compiler
// vectors of GCC and clang); elsewhere the 16 bytes that a thread loads at once. Sums run lane by lane, so results do not depend
// on the number of threads.
//
//   using V = Lanes<float, register_bytes / 4>;
//   (V::load(x) * V(2.f)).store(y);

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/vectors.hpp>

namespace weft::kernels::detail {

/// N numbers of type T in an array, for devices and compilers without vectors.
template <class T, std::size_t N, bool Native = (N > 1 && WEFT_COMPILER_VECTORS)>
struct Lanes {
  using value_type = T;
  static constexpr std::size_t size = N;
  T v[N];

  Lanes() = default;
  KOKKOS_FORCEINLINE_FUNCTION Lanes(T x) {
    for (std::size_t k = 0; k < N; ++k) v[k] = x;
  }
  template <class S>
  KOKKOS_FORCEINLINE_FUNCTION static Lanes load(const S* p) {
    Lanes r;
#if defined(__CUDA_ARCH__)
    if constexpr (words_of < S >> 1)
      if (aligned(p)) {
        S part[N];
        load_words(p, part);
        for (std::size_t k = 0; k < N; ++k) r.v[k] = T(part[k]);
        return r;
      }
#endif
    for (std::size_t k = 0; k < N; ++k) r.v[k] = T(p[k]);
    return r;
  }
  /// Loads the first `count` numbers from memory; the others are `fill`.
  template <class S>
  KOKKOS_FORCEINLINE_FUNCTION static Lanes load(const S* p, std::size_t count, T fill = T(0)) {
    if (N > 1 && count >= N) return load(p);
    Lanes r;
    for (std::size_t k = 0; k < N; ++k) r.v[k] = k < count ? T(p[k]) : fill;
    return r;
  }
  template <class S>
  KOKKOS_FORCEINLINE_FUNCTION void store(S* p, std::size_t count = N) const {
#if defined(__CUDA_ARCH__)
    if constexpr (words_of < S >> 1)
      if (count >= N && aligned(p)) {
        S part[N];
#if __CUDA_ARCH__ >= 800
        if constexpr (std::is_same_v<S, bfloat16> && std::is_same_v<T, float>) {  // one instruction rounds two
          std::uint32_t pairs[N / 2];
          for (std::size_t k = 0; k < N / 2; ++k)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[k]) : "f"(v[2 * k + 1]), "f"(v[2 * k]));
          std::memcpy(static_cast<void*>(part), pairs, sizeof pairs);
          return store_words(p, part);
        }
#endif
        for (std::size_t k = 0; k < N; ++k) part[k] = S(v[k]);
        return store_words(p, part);
      }
#endif
    for (std::size_t k = 0; k < count; ++k) p[k] = S(v[k]);
  }
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION static Lanes make(F f) {
    Lanes r;
    for (std::size_t k = 0; k < N; ++k) r.v[k] = f(k);
    return r;
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes operator+(Lanes a, Lanes b) {
    return make([&](std::size_t k) { return a.v[k] + b.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes operator-(Lanes a, Lanes b) {
    return make([&](std::size_t k) { return a.v[k] - b.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes operator*(Lanes a, Lanes b) {
    return make([&](std::size_t k) { return a.v[k] * b.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes operator/(Lanes a, Lanes b) {
    return make([&](std::size_t k) { return a.v[k] / b.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes operator-(Lanes a) {
    return make([&](std::size_t k) { return -a.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes max_of(Lanes a, Lanes b) {
    return make([&](std::size_t k) { return b.v[k] < a.v[k] ? a.v[k] : b.v[k]; });
  }
  /// x in the first `count` lanes, `fill` in the others.
  KOKKOS_FORCEINLINE_FUNCTION static Lanes first(Lanes x, std::size_t count, T fill) {
    return make([&](std::size_t k) { return k < count ? x.v[k] : fill; });
  }
  /// x in lanes whose word is at least `threshold` in its upper 24 bits, otherwise 0.
  KOKKOS_FORCEINLINE_FUNCTION static Lanes keep(Lanes x, const std::uint32_t* words, std::uint32_t threshold) {
    return make([&](std::size_t k) { return (words[k] >> 8) >= threshold ? x.v[k] : T(0); });
  }
  /// x in lanes whose number at p is x rounded to 16 bits; in all other lanes the number at p.
  template <class S>
  KOKKOS_FORCEINLINE_FUNCTION static Lanes unless_written(Lanes x, const S* p, std::size_t count = N) {
    return make([&](std::size_t k) { return k < count && S(x.v[k]).bits != p[k].bits ? T(p[k]) : x.v[k]; });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes exp(Lanes a) {
    return make([&](std::size_t k) { return Kokkos::exp(a.v[k]); });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes reciprocal(Lanes a) { return Lanes(T(1)) / a; }
  KOKKOS_FORCEINLINE_FUNCTION friend Lanes sqrt(Lanes a) {
    return make([&](std::size_t k) { return Kokkos::sqrt(a.v[k]); });
  }
  KOKKOS_FORCEINLINE_FUNCTION friend T sum(Lanes a) {
    T r = a.v[0];
    for (std::size_t k = 1; k < N; ++k) r += a.v[k];
    return r;
  }
  KOKKOS_FORCEINLINE_FUNCTION friend T largest(Lanes a) {
    T r = a.v[0];
    for (std::size_t k = 1; k < N; ++k) r = r < a.v[k] ? a.v[k] : r;
    return r;
  }

#if defined(__CUDACC__)
 private:
  // A GPU's widest load and store take 16 bytes at a multiple of 16. 0: N numbers of type S are not whole words.
  template <class S>
  static constexpr std::size_t words_of = N * sizeof(S) % 4 == 0 ? N * sizeof(S) / 4 : 0;
  template <class S>
  static constexpr std::size_t step = words_of<S> % 4 == 0   ? 4
                                      : words_of<S> % 2 == 0 ? 2
                                                             : 1;  // words at once
  template <class S>
  __device__ static bool aligned(const S* p) {
    return reinterpret_cast<std::uintptr_t>(p) % (4 * step<S>) == 0;
  }
  template <std::size_t Words>
  struct alignas(4 * Words) Piece {
    std::uint32_t word[Words];
  };
  template <class S>
  __device__ static void load_words(const S* p, S* part) {
    using P = Piece<step<S>>;
    P pieces[words_of<S> / step<S>];
    for (std::size_t i = 0; i < words_of<S> / step<S>; ++i) pieces[i] = reinterpret_cast<const P*>(p)[i];
    std::memcpy(static_cast<void*>(part), pieces, N * sizeof(S));
  }
  template <class S>
  __device__ static void store_words(S* p, const S* part) {
    using P = Piece<step<S>>;
    P pieces[words_of<S> / step<S>];
    std::memcpy(pieces, static_cast<const void*>(part), N * sizeof(S));
    for (std::size_t i = 0; i < words_of<S> / step<S>; ++i) reinterpret_cast<P*>(p)[i] = pieces[i];
  }
#endif
};

#if WEFT_COMPILER_VECTORS
// One specialisation for each type, because the vector attribute cannot depend on template parameters.
template <class T>
struct Register;
template <>
struct Register<float> {
  typedef float native __attribute__((vector_size(register_bytes)));
  typedef float unaligned __attribute__((vector_size(register_bytes), aligned(4), may_alias));
};
template <>
struct Register<double> {
  typedef double native __attribute__((vector_size(register_bytes)));
  typedef double unaligned __attribute__((vector_size(register_bytes), aligned(8), may_alias));
};
typedef std::int32_t IntegerRegister __attribute__((vector_size(register_bytes)));
typedef std::uint32_t WordRegister __attribute__((vector_size(register_bytes)));
typedef std::uint16_t HalfRegister __attribute__((vector_size(register_bytes / 2)));

/// Widens each 16-bit number to a 32-bit word.
[[gnu::always_inline]] inline WordRegister widen(HalfRegister bits) {
#if defined(__AVX512F__)  // g++ 12 uses five instructions for the conversion
  WordRegister words;
  asm("vpmovzxwd %1, %0" : "=v"(words) : "vm"(bits));
  return words;
#else
  return __builtin_convertvector(bits, WordRegister);
#endif
}

/// A compiler vector, for N > 1.
template <class T, std::size_t N>
struct Lanes<T, N, true> {
  static_assert(N * sizeof(T) == register_bytes, "Lanes are one number or one register");
  using value_type = T;
  using native = typename Register<T>::native;
  using unaligned = typename Register<T>::unaligned;
  static constexpr std::size_t size = N;
  native v;

  Lanes() = default;
  [[gnu::always_inline]] Lanes(T x) : v(x - native{}) {}  // x - 0 is x even for -0, so the compiler removes it
  [[gnu::always_inline]] explicit Lanes(native x) : v(x) {}

  [[gnu::always_inline]] static Lanes load(const T* p) { return Lanes(native(*reinterpret_cast<const unaligned*>(p))); }
  [[gnu::always_inline]] static Lanes load(const bfloat16* p) {
    static_assert(std::is_same_v<T, float>);
    HalfRegister bits;
    std::memcpy(&bits, p, sizeof(bits));
    return Lanes((native)(widen(bits) << 16));
  }
  [[gnu::always_inline]] static Lanes load(const float16* p) {
    static_assert(std::is_same_v<T, float>);
    native r;
#if defined(__F16C__) && defined(__AVX__)
    HalfRegister bits;
    std::memcpy(&bits, p, sizeof(bits));
    asm("vcvtph2ps %1, %0" : "=v"(r) : "vm"(bits));
#else
    for (std::size_t k = 0; k < N; ++k) r[k] = float(p[k]);
#endif
    return Lanes(r);
  }
  template <class S>
  [[gnu::always_inline]] static Lanes load(const S* p, std::size_t count, T fill = T(0)) {
    if (count >= N) return load(p);
    S part[N];
    for (std::size_t k = 0; k < N; ++k) part[k] = k < count ? p[k] : S(fill);
    return load(part);
  }
  [[gnu::always_inline]] void store(T* p) const { *reinterpret_cast<unaligned*>(p) = v; }
  [[gnu::always_inline]] void store(bfloat16* p) const {
    static_assert(std::is_same_v<T, float>);
#if defined(__AVX512BF16__)
    HalfRegister bits;
    asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(v));
#else
    const WordRegister u = (WordRegister)v;
    const WordRegister nan = (WordRegister)((u & 0x7fffffffu) > 0x7f800000u);
    const WordRegister rounded = (((u + 0x7fffu + ((u >> 16) & 1u)) >> 16) & ~nan) | (((u >> 16) | 0x40u) & nan);
    const HalfRegister bits = __builtin_convertvector(rounded, HalfRegister);
#endif
    std::memcpy(static_cast<void*>(p), &bits, sizeof(bits));
  }
  [[gnu::always_inline]] void store(float16* p) const {
    static_assert(std::is_same_v<T, float>);
#if defined(__F16C__) && defined(__AVX__)
    HalfRegister bits;
    asm("vcvtps2ph $0, %1, %0" : "=v"(bits) : "v"(v));
    std::memcpy(static_cast<void*>(p), &bits, sizeof(bits));
#else
    for (std::size_t k = 0; k < N; ++k) p[k] = float16(v[k]);
#endif
  }
  template <class S>
  [[gnu::always_inline]] void store(S* p, std::size_t count) const {
    if (count >= N) return store(p);
    S part[N];
    store(part);
    for (std::size_t k = 0; k < count; ++k) p[k] = part[k];
  }

  [[gnu::always_inline]] friend Lanes operator+(Lanes a, Lanes b) { return Lanes(a.v + b.v); }
  [[gnu::always_inline]] friend Lanes operator-(Lanes a, Lanes b) { return Lanes(a.v - b.v); }
  [[gnu::always_inline]] friend Lanes operator*(Lanes a, Lanes b) { return Lanes(a.v * b.v); }
  [[gnu::always_inline]] friend Lanes operator/(Lanes a, Lanes b) { return Lanes(a.v / b.v); }
  [[gnu::always_inline]] friend Lanes operator-(Lanes a) { return Lanes(-a.v); }
  /// The larger of the two; a NaN in `b` is kept.
  [[gnu::always_inline]] friend Lanes max_of(Lanes a, Lanes b) { return Lanes(native(b.v < a.v ? a.v : b.v)); }
  [[gnu::always_inline]] static Lanes first(Lanes x, std::size_t count, T fill) {
    static constexpr T index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return Lanes(native(load(index).v < Lanes(T(count)).v ? x.v : Lanes(fill).v));
  }
  [[gnu::always_inline]] static Lanes keep(Lanes x, const std::uint32_t* words, std::uint32_t threshold) {
    if constexpr (sizeof(T) == 4) {
      WordRegister w;
      std::memcpy(&w, words, sizeof(w));
      return Lanes((native)((WordRegister)((w >> 8) >= threshold) & (WordRegister)x.v));
    } else {
      for (std::size_t k = 0; k < N; ++k) x.v[k] = (words[k] >> 8) >= threshold ? x.v[k] : T(0);
      return x;
    }
  }
  template <class S>
  [[gnu::always_inline]] static Lanes unless_written(Lanes x, const S* p, std::size_t count = N) {
    static_assert(std::is_same_v<T, float>);
    if (count < N) return make_unless_written(x, p, count);
    // A number rounds to the stored one if, as in store, the upper 16 bits of the sum are the same.
    if constexpr (std::is_same_v<S, bfloat16>) {
      const WordRegister u = (WordRegister)x.v, w = (WordRegister)load(p).v;
      const WordRegister same = (WordRegister)((u + 0x7fffu + ((u >> 16) & 1u) - w) >> 16 == 0);
      return Lanes((native)((u & same) | (w & ~same)));
    } else {
      S rounded[N];
      x.store(rounded);
#if defined(__F16C__) && defined(__AVX__)
      const Lanes written = load(p);
      return Lanes(native(load(rounded).v == written.v ? x.v : written.v));
#else
      return __builtin_memcmp(rounded, p, sizeof(rounded)) == 0 ? x : make_unless_written(x, p, N);
#endif
    }
  }
  template <class S>
  static Lanes make_unless_written(Lanes x, const S* p, std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) x.v[k] = Lanes<T, 1>::unless_written(x.v[k], p + k).v[0];
    return x;
  }
  /// e^a. float: polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2], at most 2 ulp; 0 below -104 (-87.3 without AVX-512), 2.3e38
  /// above 88.3. double: the C library's.
  [[gnu::always_inline]] friend Lanes exp(Lanes a) {
    if constexpr (std::is_same_v<T, float>) {
#if defined(__AVX512F__)
      native x, n, result;  // max and min return their second operand if one is NaN
      asm("vmaxps %1, %2, %0" : "=v"(x) : "v"(a.v), "v"(Lanes(-110.f).v));
      asm("vminps %1, %2, %0" : "=v"(x) : "v"(x), "v"(Lanes(88.37f).v));
      asm("vrndscaleps $8, %1, %0" : "=v"(n) : "v"(x * 1.44269504f));
      asm("vscalefps %2, %1, %0" : "=v"(result) : "v"(exp_reduced(x, n)), "v"(n));
      return Lanes(result);
#else
      const native x0 = max_of(Lanes(-87.33f), a).v;
      const native x = x0 > 88.37f ? native{} + 88.37f : x0;  // a NaN is kept
      const native shifted = x * 1.44269504f + 12582912.f;    // 1.5 * 2^23: the integer part is in the last bits
      const native scale = (native)(((IntegerRegister)shifted << 23) + 0x3f800000);
      const native p = exp_reduced(x, shifted - 12582912.f) * scale;
      return Lanes(native(a.v < -87.33f ? native{} : p));
#endif
    } else {
      Lanes r;
      for (std::size_t k = 0; k < N; ++k) r.v[k] = std::exp(a.v[k]);
      return r;
    }
  }
  /// 1 / a. float with AVX-512: 1 ulp, from a 14-bit estimate and one Newton step; a division takes three times as long.
  [[gnu::always_inline]] friend Lanes reciprocal(Lanes a) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>) {
      native r;
      asm("vrcp14ps %1, %0" : "=v"(r) : "v"(a.v));
      return Lanes(native(r + r * (1.f - a.v * r)));
    }
#endif
    return Lanes(T(1)) / a;
  }
  [[gnu::always_inline]] friend Lanes sqrt(Lanes a) {
#if defined(__AVX512F__)  // inline assembly: the header of the intrinsics costs every user 0.4 s of compile time
    if constexpr (std::is_same_v<T, float>) {
      native r;
      asm("vsqrtps %1, %0" : "=v"(r) : "v"(a.v));
      return Lanes(r);
    }
#endif
    Lanes r;
    for (std::size_t k = 0; k < N; ++k) r.v[k] = std::sqrt(a.v[k]);
    return r;
  }
  /// e^(x - n ln 2).
  [[gnu::always_inline]] static native exp_reduced(native x, native n) {
    native r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    native p = r * 1.39336765e-3f + 8.36319756e-3f;
    p = p * r + 4.16664630e-2f;
    p = p * r + 1.66665763e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    return p * r + 1.f;
  }
  /// Adds the second half of the lanes to the first, then the second quarter to the first, and so on.
  [[gnu::always_inline]] friend T sum(Lanes a) {
    return folded(a, [](Lanes x, Lanes y) { return x + y; });
  }
  [[gnu::always_inline]] friend T largest(Lanes a) {
    return folded(a, [](Lanes x, Lanes y) { return max_of(y, x); });
  }

 private:
  // In registers: memory would delay the few additions by their stores.
  template <std::size_t Half = N / 2, class F>
  [[gnu::always_inline]] static T folded(Lanes a, const F& combine) {
    if constexpr (Half == 0) return a.v[0];
    else return folded<Half / 2>(combine(a, upper<Half>(a, std::make_index_sequence<N>())), combine);
  }
  template <std::size_t Half, std::size_t... K>
  [[gnu::always_inline]] static Lanes upper(Lanes a, std::index_sequence<K...>) {
    return Lanes(native(__builtin_shufflevector(a.v, a.v, int((K + Half) % N)...)));
  }
};
#endif

}  // namespace weft::kernels::detail
