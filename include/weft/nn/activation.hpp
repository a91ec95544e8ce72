// SPDX-License-Identifier: Apache-2.0
#pragma once
// Activations without parameters: GELU (the tanh form of GPT-2) and SwiGLU (arXiv:2002.05202). They are elementwise, so they
// accept any sharding. They are not linear, so they refuse Partial.
//
//   Sequential(Linear<Column>(...), Gelu{}, Linear<Row>(...))

#include <tuple>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
struct Gelu : Primitive<Gelu> {
  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    require_not_partial<X>();
    X y(x.device(), x.shape());
    kernels::gelu_forward(x.device(), x.size(), x.data(), y.data());
    return Result{std::move(y), x};
  }
  template <class Context, class X, class G>
  auto backward(const Context&, X x, const G& g) const {
    require_gradient_of<X, G>();
    G dx(x.device(), x.shape());
    kernels::gelu_backward(x.device(), x.size(), x.data(), g.data(), dx.data());
    return dx;
  }
  /// The same in operations on Variables, inside of grad (operations/grad.hpp).
  auto formula(const auto& x) const { return gelu(x); }
};

/// (gate, up) -> gate · sigmoid(gate) · up, both [tokens, width].
struct SwiGlu : Primitive<SwiGlu> {
  template <class Context, class X>
  auto forward(const Context&, const std::tuple<X, X>& in) const {
    require_not_partial<X>();
    const X &gate = std::get<0>(in), &up = std::get<1>(in);
    X y(gate.device(), gate.shape());
    kernels::swiglu_forward(gate.device(), gate.rows(), gate.columns(), gate.data(), gate.columns(), up.data(), up.columns(),
                            y.data());
    return Result{std::move(y), in};
  }
  template <class Context, class X, class G>
  auto backward(const Context&, std::tuple<X, X> in, const G& g) const {
    require_gradient_of<X, G>();
    const X &gate = std::get<0>(in), &up = std::get<1>(in);
    std::tuple<G, G> out{G(gate.device(), gate.shape()), G(gate.device(), gate.shape())};
    kernels::swiglu_backward(gate.device(), gate.rows(), gate.columns(), gate.data(), gate.columns(), up.data(), up.columns(),
                             g.data(), std::get<0>(out).data(), gate.columns(), std::get<1>(out).data(), up.columns());
    return out;
  }
};

}  // namespace weft
