// SPDX-License-Identifier: Apache-2.0
#pragma once
// Initial values of a parameter: a distribution, with the names and numbers of PyTorch's torch.nn.init. Each element is a
// function of the model's seed, the parameter's name and the element's index in the whole parameter, and fans are those of the
// whole parameter, so the values are the same bits however the parameter is cut.
//
//   Parameter<Shard<tp, 0>> weight(context, "weight", {out, in}, kaiming_normal({.nonlinearity = Nonlinearity::relu}));

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/tensor/shape.hpp>

namespace weft {

/// The number by whose square root values are divided: the inputs of an output, or the outputs of an input.
enum class Fan { in, out };

/// The function that follows a layer, for the gain of its weights.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };

/// The gain that keeps a variance through a nonlinearity, as torch.nn.init.calculate_gain; `slope`: of leaky_relu.
double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

namespace detail {

/// The inputs of each output and the outputs of each input of a layer.
struct Fans {
  std::size_t in = 0, out = 0;
};

}  // namespace detail

/// The distribution of a parameter's initial values. Made by the functions below.
struct InitialValues {
  enum class Kind { constant, normal, uniform, truncated_normal, orthogonal };
  enum class DividedBy { nothing, fan_in, fan_out, mean_of_fans };

  Kind kind = Kind::constant;
  double mean = 0;           ///< of normal kinds; the constant
  double deviation = 0;      ///< of normal kinds; the gain of orthogonal
  double low = 0, high = 0;  ///< uniform in [low, high); the bounds of truncated_normal
  /// `deviation`, `low` and `high` are divided by the square root of this.
  DividedBy divided_by = DividedBy::nothing;

  /// The same with these fans, whatever the parameter's shape is: for a bias, or for a matrix that is stored transposed.
  InitialValues with_fans(std::size_t in, std::size_t out) const;
};

/// Zeros, as torch.nn.init.zeros_.
inline constexpr InitialValues zeros{};
/// Ones, as torch.nn.init.ones_.
inline constexpr InitialValues ones{.mean = 1};
/// N(mean, standard_deviation²), as torch.nn.init.normal_.
constexpr InitialValues normal(double standard_deviation, double mean = 0) {
  return {.kind = InitialValues::Kind::normal, .mean = mean, .deviation = standard_deviation};
}
/// In [low, high).
constexpr InitialValues uniform(double low, double high) {
  return {.kind = InitialValues::Kind::uniform, .low = low, .high = high};
}
/// In [-bound, bound).
constexpr InitialValues uniform(double bound) { return uniform(-bound, bound); }
/// In [-1/√fan, 1/√fan): kaiming_uniform with a slope of √5, as torch.nn.Linear and torch.nn.Conv2d start.
constexpr InitialValues uniform(Fan fan) {
  InitialValues values = uniform(1);
  values.divided_by = fan == Fan::in ? InitialValues::DividedBy::fan_in : InitialValues::DividedBy::fan_out;
  return values;
}
/// A normal distribution without its values outside [low, high]. The bounds are values and not multiples of the deviation, as
/// torch.nn.init.trunc_normal_ has them. Numerics: the quantile has a relative error of 1.2e-9.
constexpr InitialValues truncated_normal(double standard_deviation = 1, double mean = 0, double low = -2, double high = 2) {
  return {InitialValues::Kind::truncated_normal, mean, standard_deviation, low, high};
}
/// A deviation of gain/√fan, cut off at two deviations.
constexpr InitialValues truncated_normal(Fan fan, double gain = 1) {
  InitialValues values = truncated_normal(gain, 0, -2 * gain, 2 * gain);
  values.divided_by = fan == Fan::in ? InitialValues::DividedBy::fan_in : InitialValues::DividedBy::fan_out;
  return values;
}

/// Options of kaiming_uniform and kaiming_normal.
struct KaimingOptions {
  Fan fan = Fan::in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  double slope = 0;  ///< of leaky_relu: PyTorch's `a`
};
/// In ±√3 gain/√fan (He et al., arXiv:1502.01852).
InitialValues kaiming_uniform(const KaimingOptions& options = {});
/// A deviation of gain/√fan.
InitialValues kaiming_normal(const KaimingOptions& options = {});
/// In ±gain √(6 / (fan in + fan out)) (Glorot and Bengio, 2010).
InitialValues xavier_uniform(double gain = 1);
/// A deviation of gain √(2 / (fan in + fan out)).
InitialValues xavier_normal(double gain = 1);
/// `gain` times a matrix with orthonormal rows, or columns if there are fewer of them: the Q of a matrix of normal numbers (Saxe
/// et al., arXiv:1312.6120). A parameter of more dims is a matrix of dim 0 times all others. Each rank computes the whole matrix,
/// which takes rows · columns · min(rows, columns) multiplications and twice the matrix in double.
constexpr InitialValues orthogonal(double gain = 1) { return {.kind = InitialValues::Kind::orthogonal, .deviation = gain}; }

namespace detail {

/// Values for a parameter of this shape, with its fans: fan in is size / dim 0, fan out is size / dim 1. Throws ShapeError if a
/// fan or an orthogonal matrix of fewer than two dims is asked for, UsageError for numbers that no distribution has.
InitialValues values_for(const InitialValues& values, const Shape& shape, std::string_view name);

/// The orthogonal matrix [rows, columns] of a key, row-major, with gain 1.
std::vector<double> orthogonal_matrix(std::size_t rows, std::size_t columns, std::uint64_t key);

/// All numbers of a distribution in one.
std::uint64_t hash_of_values(const InitialValues& values);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/engine/initial_values_impl.hpp>
#endif
