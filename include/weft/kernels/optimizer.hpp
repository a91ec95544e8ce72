// SPDX-License-Identifier: Apache-2.0
#pragma once
// The updates of weft's rules, fused into one pass over memory. PyTorch's formulas: AdamW (Loshchilov and Hutter 2019) with
// decoupled decay, SGD with momentum.
//
//   kernels::adamw_update(device, n, parameter, master, gradient, m, v, {.learning_rate = 3e-4});

#include <cmath>
#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/kernels/update_elements.hpp>

namespace weft::kernels {

/// Options of adamw_update. The gradient is first multiplied by gradient_scale (clipping).
struct AdamwOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double bias_correction1 = 1;  ///< 1 - beta1^step
  double bias_correction2 = 1;  ///< 1 - beta2^step
  double gradient_scale = 1;
};

/// The arithmetic of AdamW in type A.
template <class A>
struct AdamwElement {
  static constexpr int buffers = 2;  // the moments
  A beta1, beta2, one_less_beta1, one_less_beta2, keep, step, correction, epsilon;

  explicit AdamwElement(const AdamwOptions& options)
      : beta1(A(options.beta1)),
        beta2(A(options.beta2)),
        one_less_beta1(A(1 - options.beta1)),
        one_less_beta2(A(1 - options.beta2)),
        keep(A(1 - options.learning_rate * options.weight_decay)),
        step(A(options.learning_rate / options.bias_correction1)),
        correction(A(1 / std::sqrt(options.bias_correction2))),
        epsilon(A(options.epsilon)) {}

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V g, V& value, V* moments) const {
    const V first = V(beta1) * moments[0] + V(one_less_beta1) * g;
    const V second = V(beta2) * moments[1] + V(one_less_beta2) * g * g;
    value = V(keep) * value - V(step) * first / (sqrt(second) * V(correction) + V(epsilon));
    moments[0] = first;
    moments[1] = second;
  }
  bool operator==(const AdamwElement&) const = default;
};

/// One AdamW step on n elements; `parameter` and `master` as in UpdateArrays. m and v are the moments.
template <class P, class G, class Exec>
void adamw_update(Device<Exec>& device, std::size_t n, P* parameter, accumulate_t<P>* master, const G* gradient,
                  accumulate_t<P>* m, accumulate_t<P>* v, const AdamwOptions& options) {
  const UpdateArrays<P, G, 2> arrays{n, parameter, master, gradient, {m, v}};
  update_elements(device, arrays, AdamwElement<accumulate_t<P>>(options), {.value = options.gradient_scale});
}

/// Options of SgdElement.
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// The arithmetic of SGD in type A: g += decay * p; buffer = momentum * buffer + g; p -= rate * (nesterov ? g + momentum *
/// buffer : buffer). The buffer starts at 0.
template <class A>
struct SgdElement {
  static constexpr int buffers = 1;
  A rate, decay, factor;
  bool nesterov;

  explicit SgdElement(const SgdOptions& options)
      : rate(A(options.learning_rate)), decay(A(options.weight_decay)), factor(A(options.momentum)), nesterov(options.nesterov) {}

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* kept) const {
    const V g = gradient + V(decay) * value;
    kept[0] = V(factor) * kept[0] + g;
    value = value - V(rate) * (nesterov ? g + V(factor) * kept[0] : kept[0]);
  }
  bool operator==(const SgdElement&) const = default;
};

/// Momentum and the direction of an update on n elements: buffer = momentum * buffer + g; direction = nesterov ? g + momentum *
/// buffer : buffer, with g = gradient_scale * gradient. The buffer starts at 0.
template <class A, class Exec>
void momentum_direction(Device<Exec>& device, std::size_t n, const A* gradient, A* buffer, A* direction, double momentum,
                        bool nesterov, double gradient_scale) {
  using V = detail::lanes_for<Exec, A>;
  const A scale = A(gradient_scale), factor = A(momentum);
  detail::for_lanes<V>(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V g = V(scale) * V::load(gradient + i, count);
        const V sum = V(factor) * V::load(buffer + i, count) + g;
        sum.store(buffer + i, count);
        (nesterov ? g + V(factor) * sum : sum).store(direction + i, count);
      });
}

/// p = keep * p - step * direction on n elements; `parameter` and `master` as in UpdateArrays.
template <class P, class Exec>
void direction_update(Device<Exec>& device, std::size_t n, P* parameter, accumulate_t<P>* master,
                      const accumulate_t<P>* direction, double keep, double step) {
  using V = detail::lanes_for<Exec, P>;
  using A = accumulate_t<P>;
  const A kept = A(keep), length = A(step);
  detail::for_lanes<V>(
      device, {"optimizer", n * (sizeof(A) + detail::weight_bytes(parameter, master))}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V old = detail::values_before<V>(parameter, master, i, count);
        const V updated = V(kept) * old - V(length) * V::load(direction + i, count);
        if (parameter != nullptr) updated.store(parameter + i, count);
        if (master != nullptr) updated.store(master + i, count);
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
