// SPDX-License-Identifier: Apache-2.0
#pragma once
// The activation of an MLP as a setting of its config, for models that were trained with another one than GPT-2's.
//
//   kernels::activation_forward(device, MlpActivation::relu, n, x, y);

#include <cstddef>

#include <weft/kernels/activation.hpp>
#include <weft/kernels/functions.hpp>

namespace weft {

/// gelu_tanh: GPT-2's, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))). gelu: x Φ(x). relu: max(x, 0). silu: x sigmoid(x).
enum class MlpActivation { gelu_tanh, gelu, relu, silu, tanh };

namespace kernels {

struct Tanh {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x) const {
    return detail::each_lane(x, [](typename V::value_type a) { return Kokkos::tanh(a); });
  }
};
/// A function of x; TanhGradient is one of tanh(x).
struct TanhGradientOfInput {
  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION V operator()(V x, V g) const {
    return TanhGradient()(Tanh()(x), g);
  }
};

/// y[i] = activation(x[i]); y may be x.
template <class T, class Exec>
void activation_forward(Device<Exec>& device, MlpActivation activation, std::size_t n, const T* x, T* y) {
  switch (activation) {
    case MlpActivation::gelu_tanh: return gelu_forward(device, n, x, y);
    case MlpActivation::gelu: return map(device, n, x, y, GeluErf());
    case MlpActivation::relu: return map(device, n, x, y, Relu());
    case MlpActivation::silu: return map(device, n, x, y, Silu());
    case MlpActivation::tanh: return map(device, n, x, y, Tanh());
  }
}

/// dx[i] = dy[i] * activation'(x[i]); dx may be dy.
template <class T, class Exec>
void activation_backward(Device<Exec>& device, MlpActivation activation, std::size_t n, const T* x, const T* dy, T* dx) {
  switch (activation) {
    case MlpActivation::gelu_tanh: return gelu_backward(device, n, x, dy, dx);
    case MlpActivation::gelu: return map(device, n, x, dy, dx, GeluErfGradient());
    case MlpActivation::relu: return map(device, n, x, dy, dx, ReluGradient());  // relu(x) is positive exactly where x is
    case MlpActivation::silu: return map(device, n, x, dy, dx, SiluGradient());
    case MlpActivation::tanh: return map(device, n, x, dy, dx, TanhGradientOfInput());
  }
}

}  // namespace kernels

}  // namespace weft
