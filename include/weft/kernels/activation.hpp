// SPDX-License-Identifier: Apache-2.0
#pragma once
// GELU (its tanh form, GPT-2's gelu_new) and SwiGLU, with their backward. float and bfloat16 use a polynomial exp on hosts (2 ulp
// of float); double uses the C library's exp.
//
//   kernels::gelu_forward(device, n, x, y);   // y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

namespace detail {
// 0.5 (1 + tanh u) = sigmoid(2 u): costs one exp, without cancellation for large negative u.
template <class V>
KOKKOS_FORCEINLINE_FUNCTION V gelu_gate(V x) {
  using A = typename V::value_type;
  return sigmoid(x * (V(A(1.5957691216057308)) + V(A(0.07135481627260025)) * x * x));
}
}  // namespace detail

/// y[i] = gelu(x[i]); y may be x. Hendrycks and Gimpel 2016, tanh form.
template <class T, class Exec>
void gelu_forward(Device<Exec>& device, std::size_t n, const T* x, T* y) {
  using V = detail::lanes_for<Exec, T>;
  detail::for_lanes<V>(
      device, {"activation", 2 * n * sizeof(T), n}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V v = V::load(x + i, count);
        (v * detail::gelu_gate(v)).store(y + i, count);
      });
}

/// dx[i] = dy[i] * gelu'(x[i]); dx may be dy.
template <class T, class Exec>
void gelu_backward(Device<Exec>& device, std::size_t n, const T* x, const T* dy, T* dx) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  detail::for_lanes<V>(
      device, {"activation", 3 * n * sizeof(T), n}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V v = V::load(x + i, count), gate = detail::gelu_gate(v);
        const V slope = V(A(1.5957691216057308)) + V(A(3 * 0.07135481627260025)) * v * v;
        (V::load(dy + i, count) * (gate + v * gate * (V(A(1)) - gate) * slope)).store(dx + i, count);
      });
}

/// y[r, c] = silu(gate[r, c]) * up[r, c] with y [rows, width] contiguous; rows of gate and up start gate_stride and up_stride
/// values apart. Shazeer 2020.
template <class T, class Exec>
void swiglu_forward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* gate, std::size_t gate_stride,
                    const T* up, std::size_t up_stride, T* y) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"activation", 3 * rows * width * sizeof(T), rows * width}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(gate + row * gate_stride + i, count);
          (g * detail::sigmoid(g) * V::load(up + row * up_stride + i, count)).store(y + row * width + i, count);
        });
      });
}

/// d_gate and d_up of swiglu_forward, from dy [rows, width]; they may be gate and up.
template <class T, class Exec>
void swiglu_backward(Device<Exec>& device, std::size_t rows, std::size_t width, const T* gate, std::size_t gate_stride,
                     const T* up, std::size_t up_stride, const T* dy, T* d_gate, std::size_t d_gate_stride, T* d_up,
                     std::size_t d_up_stride) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using A = accumulate_t<T>;
  detail::for_each_row(
      device, {"activation", 5 * rows * width * sizeof(T), rows * width}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.template sweep<V>(width, [&](std::size_t i, std::size_t count) {
          const V g = V::load(gate + row * gate_stride + i, count), u = V::load(up + row * up_stride + i, count);
          const V d = V::load(dy + row * width + i, count), s = detail::sigmoid(g);
          (d * u * s * (V(A(1)) + g * (V(A(1)) - s))).store(d_gate + row * d_gate_stride + i, count);
          (d * g * s).store(d_up + row * d_up_stride + i, count);
        });
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
