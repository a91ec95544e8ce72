// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear, GELU and Linear as one layer, so that GELU can be fused with the products around it: in forward with the first product,
// in backward its derivative with the second. The operation chooses by the space of its tensors (kernels/matmul_fused.hpp)
// whether a library fuses both (cuBLASLt's epilogues) or two kernels run one after the other, so a model has this layer on hosts
// and on GPUs. Parameters, placements and formulas are those of Sequential(in, Gelu{}, out); without a library, the bits too.
// Another activation runs as a kernel of its own.
//
//   GeluMlp mlp(Linear<Column>(...), Linear<Row>(...));   // in a Module: x + mlp(norm(x))

#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/kernels/mlp_activation.hpp>
#include <weft/nn/linear.hpp>

namespace weft {

/// x [tokens, width] -> out(activation(in(x))). With `lean`, the activation's output is computed again in backward. Numerics:
/// GELU may take the first product before it is rounded (kernels/matmul_fused.hpp), and a recomputed GELU takes it after
/// rounding: with `lean`, results may differ from those without by the rounding of activations.
template <class In, class Out>
class GeluMlp : public Primitive<GeluMlp<In, Out>> {
 public:
  static constexpr bool saves_input = true;
  GeluMlp(In in, Out out, bool lean = false, MlpActivation activation = MlpActivation::gelu_tanh)
      : in_(std::move(in)), out_(std::move(out)), lean_(lean), activation_(activation) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    auto active = activated(context, x);  // the values before and after the activation
    auto result = out_.forward(context, active.second);
    using S = Saved<X, typename decltype(active)::first_type>;
    if (lean_) return Result{std::move(result.output), S{x, std::move(active.first), {}}};
    return Result{std::move(result.output), S{x, std::move(active.first), std::move(active.second)}};
  }
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    using H = decltype(saved.after);
    if (lean_) {
      saved.after = H(saved.before.device(), saved.before.shape());
      kernels::activation_forward(saved.before.device(), activation_, saved.before.size(), saved.before.data(),
                                  saved.after.data());
    }
    auto out = before_activation(context, std::move(saved.after), g, saved.before);
    saved.before = H();
    auto in = weft::backward_input(in_, context, std::move(saved.input), out.input_gradient);
    using D = Deferred<decltype(in.deferred), decltype(out.deferred)>;
    return InputGradient<decltype(in.input_gradient), D>{std::move(in.input_gradient),
                                                         {std::move(in.deferred), std::move(out.deferred)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    weft::backward_weight(in_, context, std::move(deferred.in));
    weft::backward_weight(out_, context, std::move(deferred.out));
  }

 private:
  template <class Context, class Y>
  auto activated(const Context& context, const Y& x) const {
    if (activation_ == MlpActivation::gelu_tanh) return in_.forward_gelu(context, x);
    auto before = in_.forward(context, x).output;
    decltype(before) after(before.device(), before.shape());
    kernels::activation_forward(before.device(), activation_, before.size(), before.data(), after.data());
    return std::pair{std::move(before), std::move(after)};
  }
  // The gradient before the activation, and the inputs of out_'s weight gradient.
  template <class Context, class H, class G>
  auto before_activation(const Context& context, H after, const G& g, const H& before) {
    if (activation_ == MlpActivation::gelu_tanh) return out_.backward_input_gelu(context, std::move(after), g, before);
    auto split = out_.backward_input(context, std::move(after), g);
    auto& d = split.input_gradient;
    kernels::activation_backward(d.device(), activation_, d.size(), before.data(), d.data(), d.data());
    return split;
  }
  template <class X, class H>
  struct Saved {
    X input;
    H before, after;
  };
  template <class I, class O>
  struct Deferred {
    I in;
    O out;
  };
  In in_;
  Out out_;
  bool lean_;
  MlpActivation activation_;
};

}  // namespace weft
