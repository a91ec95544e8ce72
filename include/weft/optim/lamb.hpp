// SPDX-License-Identifier: Apache-2.0
#pragma once
// LAMB (You et al., arXiv:1904.00962, algorithm 2) for large batches: AdamW's direction of each parameter, scaled by the ratio of
// the parameter's norm to the direction's. The norms are those of whole parameters in every layout.
//
//   optim::Lamb optimizer(model, {.learning_rate = 2e-3, .weight_decay = 0.01, .clip = 1});

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/device/parallel_for.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Lamb.
struct LambOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double weight_decay = 0.01;
  bool decay_vectors = true;                ///< false: biases and gains of norms do not decay
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// The moments of n elements, and arrays [2, n]: AdamW's direction with its decay, and the parameter.
template <class A>
struct LambDirection {
  A beta1, beta2, correction1, correction2, epsilon, decay, scale;
};
template <class A, class Exec>
void lamb_direction(Device<Exec>& device, std::size_t n, const LambDirection<A>& of, const A* gradients, const A* values,
                    A* first, A* second, A* arrays) {
  weft::detail::for_each_index(
      device, {"optimizer", 8 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const A gradient = of.scale * gradients[i], value = values[i];
        const A m = of.beta1 * first[i] + (A(1) - of.beta1) * gradient;
        const A v = of.beta2 * second[i] + (A(1) - of.beta2) * gradient * gradient;
        first[i] = m;
        second[i] = v;
        arrays[i] = m / of.correction1 / (Kokkos::sqrt(v / of.correction2) + of.epsilon) + of.decay * value;
        arrays[n + i] = value;
      });
}
/// The direction times the ratio of the norms, whose squares are squares[0] (direction) and squares[1] (parameter). A norm of 0
/// leaves the direction as it is.
template <class A, class Exec>
void scale_by_norms(Device<Exec>& device, std::size_t n, const double* squares, A* direction) {
  weft::detail::for_each_index(
      device, {"optimizer", 2 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const bool both = squares[0] > 0 && squares[1] > 0;
        direction[i] = direction[i] * (both ? A(Kokkos::sqrt(squares[1] / squares[0])) : A(1));
      });
}

}  // namespace detail

/// The update rule of Lamb.
struct LambRule {
  using Options = LambOptions;
  static constexpr Needs needs = Needs::matrix;
  static constexpr int buffers = 2, sent = 2;
  static constexpr std::array<std::string_view, 2> buffer_names{"exp_avg", "exp_avg_sq"};  // names in checkpoints

  static void check(const Options& options) { AdamWRule::check(detail::adamw_part(options)); }

  template <class P, class Exec>
  static void prepare(Device<Exec>& device, Slot& slot, const Options& options, double gradient_scale, std::uint64_t step,
                      accumulate_t<P>* arrays) {
    using A = accumulate_t<P>;
    const bool decays = slot.state->global().rank() > 1 || options.decay_vectors;
    const detail::LambDirection<A> of{A(options.beta1),
                                      A(options.beta2),
                                      A(1 - std::pow(options.beta1, double(step))),
                                      A(1 - std::pow(options.beta2, double(step))),
                                      A(options.epsilon),
                                      A(decays ? options.weight_decay : 0),
                                      A(gradient_scale)};
    detail::lamb_direction<A>(device, slot.state->kept(), of, static_cast<const A*>(slot.state->gradient().get()),
                              static_cast<const A*>(slot.wide_value()), static_cast<A*>(slot.kept[0].get()),
                              static_cast<A*>(slot.kept[1].get()), arrays);
  }

  template <class A, class Exec>
  static void transform(Device<Exec>& device, const Matrix& matrix, const Options&, A* arrays) {
    const std::size_t n = matrix.rows * matrix.columns;
    const weft::detail::Buffer squares = device.allocate(2 * sizeof(double));
    double* const sums = static_cast<double*>(squares.get());
    kernels::squared_norm(device, n, static_cast<const A*>(arrays), sums);
    kernels::squared_norm(device, n, static_cast<const A*>(arrays) + n, sums + 1);
    detail::scale_by_norms<A>(device, n, sums, arrays);
  }

  template <class P, class Exec>
  static void apply(Device<Exec>& device, Slot& slot, const Options&, double learning_rate, std::uint64_t,
                    const accumulate_t<P>* arrays) {
    kernels::direction_update<P>(device, slot.state->kept(), static_cast<P*>(slot.state->value().get()),
                                 static_cast<accumulate_t<P>*>(slot.master.get()), arrays, 1, learning_rate);
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank.
using Lamb = Optimizer<LambRule>;

}  // namespace weft::optim
