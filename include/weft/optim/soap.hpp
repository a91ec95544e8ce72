// SPDX-License-Identifier: Apache-2.0
#pragma once
// SOAP (Vyas et al., arXiv:2409.11321, algorithm 3): Adam in the eigenbasis of Shampoo's preconditioners. Every matrix between
// hidden states keeps the averages L of G Gᵀ and R of Gᵀ G, and slowly turning bases of their eigenvectors, in which the second
// moment is kept. AdamW updates embeddings, heads, vectors and all parameters that do not have two dims.
//
//   optim::Soap optimizer(model, {.learning_rate = 3e-3, .every = 10});

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/device/parallel_for.hpp>
#include <weft/kernels/eigenbasis.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/optim/direction_rule.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Soap.
struct SoapOptions {
  double learning_rate = 3e-3;
  double beta1 = 0.95, beta2 = 0.95, epsilon = 1e-8;  ///< also for AdamW
  double shampoo_beta = 0.95;                         ///< of the averages L and R
  double weight_decay = 0.01;                         ///< decoupled; also of the parameters that AdamW updates
  bool decay_vectors = true;                          ///< as AdamWOptions::decay_vectors
  std::uint64_t every = 10;                           ///< steps between turns of the bases
  double clip = 0;                                    ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                               ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  /// Parameters with separate options; a group's rule is "soap" or "adamw".
  std::vector<ParameterGroup> groups = {};
};

namespace detail {

/// average = beta average + (1 - beta) x.
template <class A, class Exec>
void move_average(Device<Exec>& device, std::size_t n, A beta, const A* x, A* average) {
  weft::detail::for_each_index(
      device, {"optimizer", 3 * n * sizeof(A)}, n,
      KOKKOS_LAMBDA(const std::size_t i) { average[i] = beta * average[i] + (A(1) - beta) * x[i]; });
}
/// Moves the second moment by the squares of `gradient`, then direction = factor * direction / (sqrt(moment) + epsilon).
template <class A, class Exec>
void adam_direction(Device<Exec>& device, std::size_t n, A beta2, A epsilon, A factor, const A* gradient, A* moment,
                    A* direction) {
  weft::detail::for_each_index(
      device, {"optimizer", 5 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const A second = beta2 * moment[i] + (A(1) - beta2) * gradient[i] * gradient[i];
        moment[i] = second;
        direction[i] = factor * direction[i] / (Kokkos::sqrt(second) + epsilon);
      });
}

/// A matrix in the bases of its two sides; a side without a basis stays as it is.
template <class A, class Exec>
struct SoapBases {
  Device<Exec>& device;
  std::size_t rows, columns;
  const A *of_rows, *of_columns;  ///< [rows, rows] and [columns, columns], a vector a row; null: the identity
  A* scratch;                     ///< [rows, columns]

  /// out = of_rows x of_columnsᵀ, or with `back` of_rowsᵀ x of_columns. `out` may be x.
  void turn(bool back, const A* x, A* out) const {
    using kernels::Transpose;
    const Transpose of_left = back ? Transpose::yes : Transpose::no, of_right = back ? Transpose::no : Transpose::yes;
    if (of_rows != nullptr)
      kernels::matmul<A, A>(device, of_left, Transpose::no, rows, columns, rows, of_rows, rows, x, columns, scratch, columns);
    else copy(x, scratch);
    if (of_columns != nullptr)
      kernels::matmul<A, A>(device, Transpose::no, of_right, rows, columns, columns, scratch, columns, of_columns, columns, out,
                            columns);
    else copy(scratch, out);
  }
  void copy(const A* from, A* to) const { weft::detail::copy_rows<Exec, A>(device, rows, columns, from, columns, to, columns); }
};

/// average [n, n] moves towards g gᵀ (`by_rows`, n = rows) or gᵀ g (n = columns); g is [rows, columns].
template <class A, class Exec>
void move_preconditioner(Device<Exec>& device, std::size_t rows, std::size_t columns, bool by_rows, A beta, const A* g,
                         A* average) {
  using kernels::Transpose;
  const std::size_t n = by_rows ? rows : columns, k = by_rows ? columns : rows;
  const weft::detail::Buffer memory = device.allocate(n * n * sizeof(A));
  A* const square = static_cast<A*>(memory.get());
  kernels::matmul<A, A>(device, by_rows ? Transpose::no : Transpose::yes, by_rows ? Transpose::yes : Transpose::no, n, n, k, g,
                        columns, g, columns, square, n);
  move_average<A>(device, n * n, beta, square, average);
}

/// One power iteration with a QR decomposition: sorts the vectors of the basis by basisᵀ average basis, descending, and the lines
/// of `moment` with them; then basis = Q of QR(average basis).
template <class A, class Exec>
void turn_basis(Device<Exec>& device, std::size_t rows, std::size_t columns, bool by_rows, const A* average, A* basis,
                A* moment) {
  using kernels::Transpose;
  const std::size_t n = by_rows ? rows : columns;
  const weft::detail::Buffer memory[] = {device.allocate(n * n * sizeof(A)), device.allocate(rows * columns * sizeof(A)),
                                         device.allocate(n * sizeof(double)), device.allocate(n * sizeof(std::uint32_t))};
  A *const power = static_cast<A*>(memory[0].get()), *const moved = static_cast<A*>(memory[1].get());
  double* const values = static_cast<double*>(memory[2].get());
  auto* const places = static_cast<std::uint32_t*>(memory[3].get());
  kernels::matmul<A, A>(device, Transpose::no, Transpose::no, n, n, n, static_cast<const A*>(basis), n, average, n, power, n);
  weft::detail::for_each_index(
      device, {"optimizer", 2 * n * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t row) {
        values[row] = kernels::detail::dot(n, static_cast<const A*>(basis) + row * n, static_cast<const A*>(power) + row * n);
      });
  kernels::descending_places(device, n, static_cast<const double*>(values), 1, places);
  kernels::permute_lines<A>(device, rows, columns, !by_rows, places, moment, moved);
  weft::detail::copy_rows<Exec, A>(device, rows, columns, static_cast<const A*>(moved), columns, moment, columns);
  kernels::permute_lines<A>(device, n, n, false, places, power, basis);
  weft::detail::copy_rows<Exec, A>(device, n, n, static_cast<const A*>(basis), n, power, n);
  kernels::orthonormal_rows<A>(device, n, power, basis);
}

}  // namespace detail

/// The first step of a matrix only begins its bases and leaves the parameter as it is, as in the authors' code, whose Adam counts
/// from the second. A side longer than `longest` keeps the identity as its basis, as there. All state of a matrix, 2 (rows² +
/// columns² + rows columns) elements, lives once, at its home (optim/update_rule.hpp).
struct SoapRule : DirectionRule<SoapOptions> {
  static constexpr std::array<std::string_view, 2> rules{"soap", "adamw"};
  static constexpr std::array<std::string_view, 6> home_names{
      "preconditioner_rows", "preconditioner_columns", "basis_rows", "basis_columns", "exp_avg", "exp_avg_sq"};
  static constexpr std::size_t longest = 10000;

  static void check(const Options& options) {
    DirectionRule::check(options);
    require_option("shampoo_beta", options.shampoo_beta, 1);
    if (options.every == 0) throw_error<UsageError>({"every 0: SOAP turns its bases every 1 or more steps"});
  }

  /// `inner`: only blocks use the parameter, not the model's front or back.
  static bool takes_whole(const ParameterState& state, bool inner) { return inner && state.global().rank() == 2; }

  static std::array<std::size_t, 6> home_elements(const ParameterState& state) {
    const std::size_t n = state.global().size(), rows = state.global()[0], columns = rows == 0 ? 0 : n / rows;
    const std::size_t left = rows > longest ? 0 : rows * rows, right = columns > longest ? 0 : columns * columns;
    return {left, right, left, right, n, n};
  }

  /// Upper bound of the additional elements that `transform` needs.
  static std::size_t workspace(const ParameterState& state) {
    const std::size_t n = state.global().size(), rows = state.global()[0], columns = rows == 0 ? 0 : n / rows;
    const std::size_t side = std::min(std::max(rows, columns), longest);
    return 2 * n + 2 * side * side + 4 * side;
  }

  template <class A, class Exec>
  static void transform(Device<Exec>& device, const Matrix& matrix, const Options& options, A* gradient) {
    const std::size_t rows = matrix.rows, columns = matrix.columns, n = rows * columns;
    A* const averages[] = {matrix.array<A>(0), matrix.array<A>(1)};
    A* const bases[] = {matrix.array<A>(2), matrix.array<A>(3)};
    A *const first = matrix.array<A>(4), *const second = matrix.array<A>(5);
    const std::uint64_t adam_step = matrix.step - 1;
    const weft::detail::Buffer kept = device.allocate(n * sizeof(A)), spare = device.allocate(n * sizeof(A));
    A* const direction = static_cast<A*>(kept.get());
    const detail::SoapBases<A, Exec> turned{device, rows, columns, bases[0], bases[1], static_cast<A*>(spare.get())};
    if (adam_step > 0) {
      const double correction1 = 1 - std::pow(options.beta1, double(adam_step)),
                   correction2 = 1 - std::pow(options.beta2, double(adam_step));
      detail::move_average<A>(device, n, A(options.beta1), gradient, first);
      turned.turn(false, first, direction);
      for (int side = 0; side < 2; ++side)
        if (averages[side] != nullptr)
          detail::move_preconditioner<A>(device, rows, columns, side == 0, A(options.shampoo_beta), gradient, averages[side]);
      turned.turn(false, gradient, gradient);
      detail::adam_direction<A>(device, n, A(options.beta2), A(options.epsilon), A(std::sqrt(correction2) / correction1),
                                gradient, second, direction);
      turned.turn(true, direction, gradient);
      for (int side = 0; side < 2; ++side)
        if (averages[side] != nullptr && adam_step % options.every == 0)
          detail::turn_basis<A>(device, rows, columns, side == 0, averages[side], bases[side], second);
      return;
    }
    for (int side = 0; side < 2; ++side) {
      if (averages[side] == nullptr) continue;
      detail::move_preconditioner<A>(device, rows, columns, side == 0, A(options.shampoo_beta), gradient, averages[side]);
      kernels::eigenvectors<A>(device, side == 0 ? rows : columns, averages[side], bases[side]);
    }
    kernels::fill<A>(device, n, gradient, A(0));
  }

  /// p = (1 - learning_rate * decay) (p - learning_rate * direction), as in the authors' code.
  template <class P, class Exec>
  static void apply(Device<Exec>& device, Slot& slot, const Options& options, double learning_rate, std::uint64_t step,
                    const accumulate_t<P>* direction) {
    if (step == 1) return;
    const double keep = 1 - learning_rate * options.weight_decay;
    move<P>(device, slot, direction, keep, keep * learning_rate);
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank. Preconditioners and bases are in
/// the type of updates: float, or double in models of double.
using Soap = Optimizer<SoapRule>;

}  // namespace weft::optim
