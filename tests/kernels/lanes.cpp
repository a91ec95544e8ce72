// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/lanes.hpp weft/kernels/detail/vectors.hpp
// covers: weft/kernels/detail/rounded.hpp weft/kernels/detail/sweep.hpp
// covers: weft/kernels/detail/transpose.hpp
// Sums and maxima over the lanes of a register: the order of the additions determines a kernel's bits. And values in registers
// with the bits that they would have in memory.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/lanes.hpp>
#include <weft/kernels/detail/rounded.hpp>
#include <weft/kernels/detail/sweep.hpp>
#include <weft/kernels/detail/transpose.hpp>
#include <weft/kernels/detail/vectors.hpp>

using namespace weft::kernels::detail;

TEST_CASE_TEMPLATE("lanes are added by halves, and the largest is found wherever it is", T, float, double) {
  using V = Lanes<T, register_bytes / sizeof(T)>;
  std::uint64_t state = 1;
  for (int trial = 0; trial < 1000; ++trial) {
    T x[V::size], part[V::size];
    for (T& value : x) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = T(std::int64_t(state >> 40) - (1 << 23)) * T(trial % 3 == 0 ? 1e-3 : 1.1) * (state >> 63 ? T(1e4) : T(1));
    }
    std::copy(x, x + V::size, part);
    for (std::size_t half = V::size / 2; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) part[k] += part[k + half];
    const T sum_of_lanes = sum(V::load(x));
    CHECK(std::memcmp(&sum_of_lanes, &part[0], sizeof(T)) == 0);
    CHECK(largest(V::load(x)) == *std::max_element(x, x + V::size));
  }
  for (std::size_t at = 0; at < V::size; ++at) {
    T x[V::size] = {};
    x[at] = T(1);
    CHECK(largest(V::load(x)) == T(1));
    CHECK(sum(V::load(x)) == T(1));
  }
}

TEST_CASE_TEMPLATE("a product and a sum in one kernel have the bits of two", V, Lanes<float, register_bytes / sizeof(float)>,
                   Lanes<double, register_bytes / sizeof(double)>, Lanes<float, 4, false>, Lanes<double, 2, false>) {
  using A = typename V::value_type;
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return A(std::int64_t(state >> 30) - (std::int64_t(1) << 33)) / A(std::int64_t(1) << 33);
  };
  std::size_t fused = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    A a[V::size], b[V::size], c[V::size], got[V::size];
    volatile A product[V::size];
    for (std::size_t k = 0; k < V::size; ++k) {
      a[k] = next(), b[k] = next(), c[k] = next();
      product[k] = a[k] * b[k];
    }
    add_apart(V::load(c), V::load(a) * V::load(b)).store(got);
    for (std::size_t k = 0; k < V::size; ++k) {
      CHECK(got[k] == c[k] + product[k]);
      fused += std::fma(a[k], b[k], c[k]) != c[k] + product[k];
    }
  }
  CHECK(fused > 0);  // a single rounding would be detected
}

TEST_CASE_TEMPLATE("a register rounded to the type of the memory has the values that a read gives", T, weft::bfloat16,
                   weft::float16, float) {
  using V = Lanes<float, register_bytes / sizeof(float)>;
  using P = Lanes<float, 4, false>;
  float x[V::size];
  T stored[V::size];
  for (std::size_t k = 0; k < V::size; ++k) x[k] = 1.0f + float(k) * 1.2345e-3f, stored[k] = T(x[k]);
  float wide[V::size], plain[P::size];
  rounded<T>(V::load(x)).store(wide);
  rounded<T>(P::load(x)).store(plain);
  for (std::size_t k = 0; k < V::size; ++k) CHECK(wide[k] == float(stored[k]));
  for (std::size_t k = 0; k < P::size; ++k) CHECK(plain[k] == float(stored[k]));
  CHECK((std::is_same_v<T, float> || wide[1] != x[1]));
}

TEST_CASE_TEMPLATE("a sweep visits each element once, and sums over its pieces are those of a loop", T, float, double) {
  using V = Lanes<T, register_bytes / sizeof(T)>;
  for (std::size_t n = 0; n < 10 * V::size; ++n) {
    std::vector<T> x(n);
    std::iota(x.begin(), x.end(), T(1));
    std::vector<int> visits(n);
    sweep<V>(n, [&](std::size_t i, std::size_t count) {
      CHECK(count == std::min<std::size_t>(V::size, n - i));
      for (std::size_t k = i; k < i + count; ++k) ++visits[k];
    });
    CHECK(visits == std::vector<int>(n, 1));
    CHECK(sum(add_up<V>(n, [&](std::size_t i, std::size_t count) { return V::load(x.data() + i, count); })) ==
          T(n * (n + 1) / 2));
  }
}

#if WEFT_COMPILER_VECTORS
TEST_CASE("a square of words is transposed") {
  constexpr std::size_t n = square_words, ld = n + 3;
  std::uint32_t from[n * n], to[n * ld] = {};
  std::iota(from, from + n * n, 1u);
  const auto load = [&](std::size_t i) {
    WordRegister row;
    std::memcpy(&row, from + i * n, sizeof row);
    return row;
  };
  transpose_square(load, to, ld);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < ld; ++j) CHECK(to[i * ld + j] == (j < n ? from[j * n + i] : 0));
}
#endif
