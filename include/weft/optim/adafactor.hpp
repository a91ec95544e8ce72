// SPDX-License-Identifier: Apache-2.0
#pragma once
// Adafactor (Shazeer and Stern, arXiv:1804.04235) with the formulas of torch.optim.Adafactor: a matrix keeps one second moment
// for each row and one for each column in place of one for each element, so the optimizer's state is a small part of the
// parameters. The moments live once, at the home of the matrix (optim/update_rule.hpp).
//
//   optim::Adafactor optimizer(model, {.learning_rate = 1e-2});

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <weft/device/parallel_for.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Adafactor.
struct AdafactorOptions {
  double learning_rate = 1e-2;  ///< upper bound of the relative step, which is at most 1 / sqrt(step)
  double beta2_decay = -0.8;    ///< the moments' decay of step t is 1 - t^beta2_decay; negative
  double epsilon = 0;  ///< smallest mean of a matrix' row moments; 0: the epsilon of the type of updates, as PyTorch's None
  double scale_epsilon = 1e-3;  ///< smallest root mean square of a parameter, by which its steps are multiplied
  double threshold = 1;         ///< largest root mean square of an update before the learning rate, at least 1; PyTorch's d
  double weight_decay = 0;      ///< decoupled
  bool decay_vectors = true;    ///< false: biases and gains of norms do not decay
  double clip = 0;              ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;         ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// A parameter as a batch of matrices of its last two dims; a vector is not factored.
struct FactoredShape {
  std::size_t batch = 1, rows = 1, columns = 1;
  bool factored = false;

  explicit FactoredShape(const Shape& shape) : columns(shape.size()), factored(shape.rank() > 1) {
    if (!factored) return;
    rows = shape[shape.rank() - 2];
    columns = shape[shape.rank() - 1];
    batch = rows * columns == 0 ? 0 : shape.size() / (rows * columns);
  }
  std::size_t size() const { return batch * rows * columns; }
};

/// arrays [2, n]: the scaled gradient, and the parameter.
template <class A, class Exec>
void gradient_and_value(Device<Exec>& device, std::size_t n, A scale, const A* gradients, const A* values, A* arrays) {
  weft::detail::for_each_index(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        arrays[i] = scale * gradients[i];
        arrays[n + i] = values[i];
      });
}

/// moments [of.size() / of.columns]: each moves by `part` towards the mean square of its row.
template <class A, class Exec>
void move_row_moments(Device<Exec>& device, const FactoredShape& of, A part, const A* gradients, A* moments) {
  const std::size_t columns = of.columns;
  weft::detail::for_each_index(
      device, {"optimizer", of.size() * sizeof(A)}, of.batch * of.rows, KOKKOS_LAMBDA(const std::size_t row) {
        double sum = 0;
        for (std::size_t i = 0; i < columns; ++i) {
          const double g = double(gradients[row * columns + i]);
          sum += g * g;
        }
        moments[row] = moments[row] + part * (A(sum / double(columns)) - moments[row]);
      });
}
/// moments [of.batch, of.columns]: each moves by `part` towards the mean square of its column.
template <class A, class Exec>
void move_column_moments(Device<Exec>& device, const FactoredShape& of, A part, const A* gradients, A* moments) {
  const std::size_t rows = of.rows, columns = of.columns;
  weft::detail::for_each_index(
      device, {"optimizer", of.size() * sizeof(A)}, of.batch * columns, KOKKOS_LAMBDA(const std::size_t index) {
        const A* const first = gradients + index / columns * rows * columns + index % columns;
        double sum = 0;
        for (std::size_t row = 0; row < rows; ++row) {
          const double g = double(first[row * columns]);
          sum += g * g;
        }
        moments[index] = moments[index] + part * (A(sum / double(rows)) - moments[index]);
      });
}
/// The mean of each matrix' row moments, at least epsilon: [of.batch].
template <class A, class Exec>
void mean_row_moments(Device<Exec>& device, const FactoredShape& of, A epsilon, const A* moments, A* means) {
  const std::size_t rows = of.rows;
  weft::detail::for_each_index(
      device, {"optimizer", of.batch * rows * sizeof(A)}, of.batch, KOKKOS_LAMBDA(const std::size_t matrix) {
        double sum = 0;
        for (std::size_t row = 0; row < rows; ++row) sum += double(moments[matrix * rows + row]);
        const A mean = A(sum / double(rows));
        means[matrix] = mean < epsilon ? epsilon : mean;
      });
}
/// direction = gradient / sqrt(max(row * column / mean, epsilon²)), in place.
template <class A, class Exec>
void divide_by_moments(Device<Exec>& device, const FactoredShape& of, A epsilon, const A* rows, const A* columns, const A* means,
                       A* direction) {
  const std::size_t height = of.rows, width = of.columns;
  weft::detail::for_each_index(
      device, {"optimizer", 2 * of.size() * sizeof(A)}, of.size(), KOKKOS_LAMBDA(const std::size_t i) {
        const std::size_t row = i / width, matrix = row / height;
        const A moment = rows[row] * columns[matrix * width + i % width] / means[matrix];
        direction[i] = direction[i] / Kokkos::sqrt(moment < epsilon * epsilon ? epsilon * epsilon : moment);
      });
}
/// The same for a vector, whose moments [n] move by `part` first.
template <class A, class Exec>
void divide_vector(Device<Exec>& device, std::size_t n, A part, A epsilon, A* moments, A* direction) {
  weft::detail::for_each_index(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const A moment = moments[i] + part * (direction[i] * direction[i] - moments[i]);
        moments[i] = moment;
        direction[i] = direction[i] / Kokkos::sqrt(moment < epsilon * epsilon ? epsilon * epsilon : moment);
      });
}
/// direction times max(least, rms of the parameter) / max(1, rms of the direction / threshold). squares: the sums of the squares
/// of direction and parameter.
template <class A, class Exec>
void scale_relatively(Device<Exec>& device, std::size_t n, double least, double threshold, const double* squares, A* direction) {
  weft::detail::for_each_index(
      device, {"optimizer", 2 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const double size = Kokkos::sqrt(squares[1] / double(n)), step = Kokkos::sqrt(squares[0] / double(n)) / threshold;
        direction[i] = direction[i] * A((size < least ? least : size) / (step > 1 ? step : 1.0));
      });
}

}  // namespace detail

/// Parameters of more than two dims are batches of matrices of their last two dims. The gradient and the parameter travel to the
/// home of each parameter, the direction back.
struct AdafactorRule {
  using Options = AdafactorOptions;
  static constexpr Needs needs = Needs::matrix;
  static constexpr int buffers = 0, sent = 2;
  static constexpr std::array<std::string_view, 3> home_names{"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"};

  static std::array<std::size_t, 3> home_elements(const ParameterState& state) {
    const detail::FactoredShape of(state.global());
    if (!of.factored) return {0, 0, of.size()};
    return {of.batch * of.rows, of.batch * of.columns, 0};
  }

  static void check(const Options& options) {
    require_option("epsilon", options.epsilon, largest_decay);
    require_option("scale_epsilon", options.scale_epsilon, largest_decay);
    require_option("weight decay", options.weight_decay, largest_decay);
    if (!(options.beta2_decay < 0) || !std::isfinite(options.beta2_decay))
      throw_error<UsageError>({"beta2_decay ", std::to_string(options.beta2_decay),
                               " is not a negative number: the moments' decay of step t is 1 - t^beta2_decay"});
    if (!(options.threshold >= 1) || !std::isfinite(options.threshold))
      throw_error<UsageError>({"threshold ", std::to_string(options.threshold), " is not a number of at least 1"});
  }

  template <class P, class Exec>
  static void prepare(Device<Exec>& device, Slot& slot, const Options&, double gradient_scale, std::uint64_t,
                      accumulate_t<P>* arrays) {
    using A = accumulate_t<P>;
    detail::gradient_and_value<A>(device, slot.state->kept(), A(gradient_scale),
                                  static_cast<const A*>(slot.state->gradient().get()), static_cast<const A*>(slot.wide_value()),
                                  arrays);
  }

  template <class A, class Exec>
  static void transform(Device<Exec>& device, const Matrix& matrix, const Options& options, A* arrays) {
    const detail::FactoredShape of(matrix.state->global());
    const A part = A(std::pow(double(matrix.step), options.beta2_decay));
    const A epsilon = options.epsilon > 0 ? A(options.epsilon) : std::numeric_limits<A>::epsilon();
    if (of.factored) {
      A *const rows = matrix.array<A>(0), *const columns = matrix.array<A>(1);
      const weft::detail::Buffer means = device.allocate(of.batch * sizeof(A));
      detail::move_row_moments<A>(device, of, part, arrays, rows);
      detail::move_column_moments<A>(device, of, part, arrays, columns);
      detail::mean_row_moments<A>(device, of, epsilon, rows, static_cast<A*>(means.get()));
      detail::divide_by_moments<A>(device, of, epsilon, rows, columns, static_cast<const A*>(means.get()), arrays);
    } else {
      detail::divide_vector<A>(device, of.size(), part, epsilon, matrix.array<A>(2), arrays);
    }
    const weft::detail::Buffer squares = device.allocate(2 * sizeof(double));
    double* const sums = static_cast<double*>(squares.get());
    kernels::squared_norm(device, of.size(), static_cast<const A*>(arrays), sums);
    kernels::squared_norm(device, of.size(), static_cast<const A*>(arrays) + of.size(), sums + 1);
    detail::scale_relatively<A>(device, of.size(), options.scale_epsilon, options.threshold, sums, arrays);
  }

  template <class P, class Exec>
  static void apply(Device<Exec>& device, Slot& slot, const Options& options, double learning_rate, std::uint64_t step,
                    const accumulate_t<P>* direction) {
    const bool decays = slot.state->global().rank() > 1 || options.decay_vectors;
    kernels::direction_update<P>(
        device, slot.state->kept(), static_cast<P*>(slot.state->value().get()), static_cast<accumulate_t<P>*>(slot.master.get()),
        direction, 1 - (decays ? learning_rate * options.weight_decay : 0), std::min(learning_rate, 1 / std::sqrt(double(step))));
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank.
using Adafactor = Optimizer<AdafactorRule>;

}  // namespace weft::optim
