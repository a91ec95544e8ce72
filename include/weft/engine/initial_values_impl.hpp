// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/initial_values.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <bit>
#include <cmath>
#include <string>

#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/initial_values.hpp>

namespace weft {

WEFT_INLINE double calculate_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2.0 / (1 + slope * slope));
    case Nonlinearity::selu: return 0.75;
    default: return 1;
  }
}

WEFT_INLINE InitialValues InitialValues::with_fans(std::size_t in, std::size_t out) const {
  InitialValues values = *this;
  const double fan = divided_by == DividedBy::fan_in    ? double(in)
                     : divided_by == DividedBy::fan_out ? double(out)
                                                        : (double(in) + double(out)) / 2;
  values.divided_by = DividedBy::nothing;
  if (divided_by == DividedBy::nothing || fan == 0) return values;
  for (double* number : {&values.deviation, &values.low, &values.high}) *number /= std::sqrt(fan);
  return values;
}

namespace detail {
WEFT_INLINE InitialValues kaiming(InitialValues values, Fan fan) {
  values.divided_by = fan == Fan::in ? InitialValues::DividedBy::fan_in : InitialValues::DividedBy::fan_out;
  return values;
}
}  // namespace detail

WEFT_INLINE InitialValues kaiming_uniform(const KaimingOptions& options) {
  return detail::kaiming(uniform(std::sqrt(3.0) * calculate_gain(options.nonlinearity, options.slope)), options.fan);
}
WEFT_INLINE InitialValues kaiming_normal(const KaimingOptions& options) {
  return detail::kaiming(normal(calculate_gain(options.nonlinearity, options.slope)), options.fan);
}
WEFT_INLINE InitialValues xavier_uniform(double gain) {
  InitialValues values = uniform(std::sqrt(3.0) * gain);
  values.divided_by = InitialValues::DividedBy::mean_of_fans;
  return values;
}
WEFT_INLINE InitialValues xavier_normal(double gain) {
  InitialValues values = normal(gain);
  values.divided_by = InitialValues::DividedBy::mean_of_fans;
  return values;
}

namespace detail {

WEFT_COLD WEFT_INLINE InitialValues values_for(const InitialValues& values, const Shape& shape, std::string_view name) {
  using Kind = InitialValues::Kind;
  const bool by_fan = values.divided_by != InitialValues::DividedBy::nothing;
  if (shape.rank() < 2 && (by_fan || values.kind == Kind::orthogonal))
    throw_error<ShapeError>({"parameter ", name, " ", shape.text(),
                             by_fan ? ": its initial values are divided by a fan, and with fewer than two dims it has none; give "
                                      "its layer's, uniform(Fan::in).with_fans(in, out), or a distribution without a fan"
                                    : ": orthogonal initial values are those of a matrix, of at least two dims"});
  const double numbers[] = {values.mean, values.deviation, values.low, values.high};
  bool finite = true;
  for (const double number : numbers) finite = finite && std::isfinite(number);
  const bool bounded = values.kind == Kind::uniform || values.kind == Kind::truncated_normal;
  if (!finite || (values.deviation < 0 && values.kind != Kind::orthogonal) || (bounded && values.low > values.high))
    throw_error<UsageError>({"parameter ", name, ": initial values with mean ", std::to_string(values.mean), ", deviation ",
                             std::to_string(values.deviation), " and bounds [", std::to_string(values.low), ", ",
                             std::to_string(values.high),
                             "]: finite numbers, a deviation of at least 0 and bounds in order are needed"});
  if (!by_fan) return values;
  return values.with_fans(shape[0] == 0 ? 0 : shape.size() / shape[0], shape[1] == 0 ? 0 : shape.size() / shape[1]);
}

// Householder reflections of a matrix with at least as many rows as columns, by rows, so that each rank does the same operations
// in the same order: H_k = 1 - factor_k v_k v_kᵀ makes column k zero below the diagonal, and Q is H_0 H_1 ... times the first
// columns of 1. Columns take the sign of R's diagonal, which makes the distribution uniform (Mezzadri, arXiv:math-ph/0609050).
WEFT_COLD WEFT_INLINE std::vector<double> orthogonal_matrix(std::size_t rows, std::size_t columns, std::uint64_t key) {
  const bool turned = rows < columns;
  const std::size_t m = turned ? columns : rows, n = turned ? rows : columns;
  std::vector<double> a(m * n), q(m * n, 0.0), v(m), along(n), factors(n), signs(n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = Philox::normal(key, i);
  const auto reflect = [&](std::vector<double>& matrix, std::size_t k, std::size_t first, double factor) {
    for (std::size_t j = first; j < n; ++j) along[j] = 0;
    for (std::size_t i = k; i < m; ++i)
      for (std::size_t j = first; j < n; ++j) along[j] += v[i] * matrix[i * n + j];
    for (std::size_t i = k; i < m; ++i) {
      const double times = factor * v[i];
      for (std::size_t j = first; j < n; ++j) matrix[i * n + j] -= times * along[j];
    }
  };
  for (std::size_t k = 0; k < n; ++k) {
    double squares = 0;
    for (std::size_t i = k; i < m; ++i) {
      v[i] = a[i * n + k];
      squares += v[i] * v[i];
    }
    const double length = std::sqrt(squares), diagonal = v[k] > 0 ? -length : length;
    signs[k] = diagonal < 0 ? -1 : 1;
    squares -= v[k] * v[k];
    v[k] -= diagonal;
    squares += v[k] * v[k];
    factors[k] = squares == 0 ? 0 : 2 / squares;
    reflect(a, k, k + 1, factors[k]);
    for (std::size_t i = k; i < m; ++i) a[i * n + k] = v[i];
  }
  for (std::size_t k = 0; k < n; ++k) q[k * n + k] = 1;
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t i = k; i < m; ++i) v[i] = a[i * n + k];
    reflect(q, k, k, factors[k]);
  }
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) q[i * n + j] *= signs[j];
  if (!turned) return q;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) a[j * m + i] = q[i * n + j];
  return a;
}

WEFT_INLINE std::uint64_t hash_of_values(const InitialValues& values) {
  std::uint64_t hash = hash_of(hash_of(0, std::uint64_t(values.kind)), std::uint64_t(values.divided_by));
  for (const double number : {values.mean, values.deviation, values.low, values.high})
    hash = hash_of(hash, std::bit_cast<std::uint64_t>(number));
  return hash;
}

}  // namespace detail

}  // namespace weft
