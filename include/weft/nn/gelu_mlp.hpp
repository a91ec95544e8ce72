// SPDX-License-Identifier: Apache-2.0
#pragma once
// A norm, Linear, GELU and Linear as one layer, so that GELU can be fused with the products around it: in forward with the first
// product, in backward its derivative with the second. The operation chooses by the space of its tensors
// (kernels/matmul_fused.hpp) whether a library fuses both (cuBLASLt's epilogues) or two kernels run one after the other, so a
// model has this layer on hosts and on GPUs. Parameters, placements and formulas are those of Sequential(RecomputeInput(norm,
// in), RecomputeInput(Gelu{}, out)); without a library, the bits too. Another activation runs as a kernel of its own.
//
//   GeluMlp mlp(LayerNorm(...), Linear<Column>(...), Linear<Row>(...));

#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/kernels/mlp_activation.hpp>
#include <weft/nn/linear.hpp>

namespace weft {

/// x [tokens, width] -> out(activation(in(norm(x)))). With `lean`, outputs of the norm and of the activation are computed again
/// in backward. Numerics: GELU may take the first product before it is rounded (kernels/matmul_fused.hpp), and a recomputed GELU
/// takes it after rounding: with `lean`, results may differ from those without by the rounding of activations.
template <class Norm, class In, class Out>
class GeluMlp : public Primitive<GeluMlp<Norm, In, Out>> {
 public:
  static constexpr bool joins_sums = detail::JoinsSums<Norm>;
  GeluMlp(Norm norm, In in, Out out, bool lean = false, MlpActivation activation = MlpActivation::gelu_tanh)
      : norm_(std::move(norm)), in_(std::move(in)), out_(std::move(out)), lean_(lean), activation_(activation) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return after_norm(context, x, weft::forward(norm_, context, x));
  }
  template <class Context, class X>
  auto forward_on_sum(const Context& context, const X& x, const X& branch) const {
    auto joined = detail::forward_on_sum(norm_, context, x, branch);
    auto result = after_norm(context, joined.sum, std::move(joined.result));
    return SumResult{std::move(joined.sum), std::move(result)};
  }
  template <class Context, class S, class G, class... Others>
  auto backward_input(const Context& context, S saved, const G& g, const Others&... others) {
    using H = decltype(saved.after);
    if (lean_) {
      saved.after = H(saved.before.device(), saved.before.shape());
      kernels::activation_forward(saved.before.device(), activation_, saved.before.size(), saved.before.data(),
                                  saved.after.data());
    }
    auto out = before_activation(context, std::move(saved.after), g, saved.before);
    saved.before = H();
    if (lean_) saved.normed = weft::forward(norm_, context, saved.input).output;
    auto in = weft::backward_input(in_, context, std::move(saved.normed), out.input_gradient);
    auto norm = weft::backward_input(norm_, context, std::move(saved.norm), in.input_gradient, others...);
    using D = Deferred<decltype(norm.deferred), decltype(in.deferred), decltype(out.deferred)>;
    return InputGradient<decltype(norm.input_gradient), D>{
        std::move(norm.input_gradient), {std::move(norm.deferred), std::move(in.deferred), std::move(out.deferred)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    weft::backward_weight(norm_, context, std::move(deferred.norm));
    weft::backward_weight(in_, context, std::move(deferred.in));
    weft::backward_weight(out_, context, std::move(deferred.out));
  }

 private:
  // The layers behind the norm, of its result for x.
  template <class Context, class X, class N>
  auto after_norm(const Context& context, const X& x, N normed) const {
    auto active = activated(context, normed.output);  // the values before and after the activation
    auto result = out_.forward(context, active.second);
    using S = Saved<X, typename N::saved_type, typename N::output_type, typename decltype(active)::first_type>;
    if (lean_) return Result{std::move(result.output), S{x, std::move(normed.saved), {}, std::move(active.first), {}}};
    return Result{std::move(result.output),
                  S{{}, std::move(normed.saved), std::move(normed.output), std::move(active.first), std::move(active.second)}};
  }
  template <class Context, class Y>
  auto activated(const Context& context, const Y& normed) const {
    if (activation_ == MlpActivation::gelu_tanh) return in_.forward_gelu(context, normed);
    auto before = in_.forward(context, normed).output;
    decltype(before) after(before.device(), before.shape());
    kernels::activation_forward(before.device(), activation_, before.size(), before.data(), after.data());
    return std::pair{std::move(before), std::move(after)};
  }
  // The gradient before the activation, and what the weights of out_ need.
  template <class Context, class H, class G>
  auto before_activation(const Context& context, H after, const G& g, const H& before) {
    if (activation_ == MlpActivation::gelu_tanh) return out_.backward_input_gelu(context, std::move(after), g, before);
    auto split = out_.backward_input(context, std::move(after), g);
    auto& d = split.input_gradient;
    kernels::activation_backward(d.device(), activation_, d.size(), before.data(), d.data(), d.data());
    return split;
  }
  template <class X, class N, class Y, class H>
  struct Saved {
    X input;  // only with `lean`
    N norm;
    Y normed;
    H before, after;
  };
  template <class N, class I, class O>
  struct Deferred {
    N norm;
    I in;
    O out;
  };
  Norm norm_;
  In in_;
  Out out_;
  bool lean_;
  MlpActivation activation_;
};

}  // namespace weft
