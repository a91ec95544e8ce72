// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layer and RMS normalisation over the columns, and RMS normalisation over each head. Statistics are in accumulate_t (float for
// bfloat16). Under sequence parallelism rows are sharded over tp, so the gradients of gain and bias are Partial<tp>: the types
// mark them as unreduced, and TensorParallel reduces them (the sum that was missing in Megatron-LM#1446).
//
// LayerNorm and RmsNorm take over the sums of a residual connection around them (nn/add_norm.hpp): forward_on_sum(context, x,
// branch) returns the pair of x + branch and the Result of it.
//
//   LayerNorm norm(context / "ln_1", width, 1e-5);

#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/row_terms.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/tensor/around.hpp>

namespace weft {

namespace detail {
// Refuses, at compile time, rows that are terms of a sum or pieces. False if they are terms; the norm then
// returns AlreadyRefused.
template <class X>
constexpr bool require_whole_rows() {
  require_not_partial<X>();
  static_assert(
      !sharded_along<X, 1>,
      "weft: a norm needs whole rows, but its input is sharded along dim 1: gather it first, to<Invariant<axis>>(context, x)");
  return !any_partial<X>;
}
// Whether an axis other than a domain axis cuts dim 1.
template <class X>
inline constexpr bool rows_cut_otherwise = false;
template <class T, class E, class... P>
inline constexpr bool rows_cut_otherwise<Tensor<T, E, P...>> = ((shard_dim<P> == 1 && !is_domain_axis<typename P::axis>) || ...);
// The same, of rows that are the last dim of x [..., width]: a domain axis may cut any other dim.
template <class X>
constexpr bool require_rows_of_norm() {
  require_not_partial<X>();
  static_assert(
      !rows_cut_otherwise<X>,
      "weft: a norm needs whole rows, but its input is sharded along dim 1: gather it first, to<Invariant<axis>>(context, "
      "x); a domain axis (dx, dy, dz) may cut dims before the last one");
  return !any_partial<X>;
}
// Throws LayoutError for a domain axis that cuts the rows.
template <class T, class E, class... P>
void require_rows_uncut(const char* norm, const Tensor<T, E, P...>& x) {
  const int last = int(x.shape().rank()) - 1;
  [[maybe_unused]] const auto require = [&](std::string_view axis, bool domain, int dim) {
    if (domain && dim > 0 && dim >= last)
      throw_error<LayoutError>({call_text(norm, {x}), ": ", axis, " cuts dim ", dim,
                                ", and a norm needs whole rows, the last dim: gather them first, to<Invariant<", axis, ">>(x)"});
  };
  (require(P::axis::name, is_domain_axis<typename P::axis>, shard_dim<P>), ...);
}
// A kernel reads one element of the gain per column of x.
template <class X>
void require_width(const char* norm, const X& x, const Parameter<>& gain) {
  require_rows_uncut(norm, x);
  require_extents(norm, x, x.columns(), gain.for_operand(x));
}
// The memory for the sum of two tensors.
template <class X>
X place_for_sum(const X& x, const X& branch) {
  require_same_shape("forward_on_sum", x, branch);
  return X(x.device(), x.shape().with_cuts_of(branch.shape()));
}
// The memory for the gradient of x, if x has other uses.
template <class X, class G>
G place_for_gradient(const X& x, const G& others) {
  return G(x.device(), others ? others.shape().with_cuts_of(x.shape()) : x.shape());
}
// Statistics [rows] in accumulate_t; they stay inside the layer, so they have no placement.
template <class X>
using Statistics = Tensor<accumulate_t<typename X::value_type>, typename X::execution_space>;
}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, by row (arXiv:1607.06450); x [..., width]. Parameters "weight",
/// "bias" [width]. Domain axes may cut dims between the first and the last, as of images with their channels last.
class LayerNorm : public Primitive<LayerNorm> {
 public:
  static constexpr bool fuses_addition = true;
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<1, std::size_t, double>, A...>
  explicit LayerNorm(const A&...) : LayerNorm(detail::refused_layer<LayerNorm>()) {
    static_assert(
        sizeof...(A) > 99,
        "weft: LayerNorm takes the context with its name and the width, in the constructor of your Module: `LayerNorm norm;`, "
        "norm(context / \"norm\", width)");
  }
  template <class Context>
  LayerNorm(const Context& context, std::size_t width, double epsilon = 1e-5)
      : weight(context, "weight", {width}, ones), bias(context, "bias", {width}, zeros), epsilon_(epsilon) {}

  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    if constexpr (!detail::require_rows_of_norm<X>()) {
      return Result{detail::AlreadyRefused(), Nothing{}};
    } else {
      detail::require_width("layer_norm", x, weight);
      using S = detail::Statistics<X>;
      X y(x.device(), x.shape());
      S mean(x.device(), {x.rows()}), rstd(x.device(), {x.rows()});
      kernels::layer_norm_forward(x.device(), x.rows(), x.columns(), x.data(), weight.for_operand(x).data(),
                                  bias.for_operand(x).data(), y.data(), mean.data(), rstd.data(), epsilon_);
      return Result{std::move(y), Saved<X, S>{x, std::move(mean), std::move(rstd)}};
    }
  }
  template <class Context, class X>
  auto forward_on_sum(const Context&, const X& x, const X& branch) const {
    detail::require_rows_of_norm<X>();
    detail::require_width("layer_norm", x, weight);
    using S = detail::Statistics<X>;
    X sum = detail::place_for_sum(x, branch), y(x.device(), sum.shape());
    S mean(x.device(), {x.rows()}), rstd(x.device(), {x.rows()});
    kernels::layer_norm_sum_forward(x.device(), x.rows(), x.columns(), x.data(), branch.data(), weight.for_operand(x).data(),
                                    bias.for_operand(x).data(), sum.data(), y.data(), mean.data(), rstd.data(), epsilon_);
    return std::pair{sum, Result{std::move(y), Saved<X, S>{sum, std::move(mean), std::move(rstd)}}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context&, Saved saved, const G& g, const std::type_identity_t<G>& others = G()) {
    const auto& x = saved.x;
    require_gradient_of<decltype(saved.x), G>();
    G dx = detail::place_for_gradient(x, others);
    kernels::layer_norm_backward_input(x.device(), x.rows(), x.columns(), x.data(), weight.for_operand(x).data(),
                                       saved.mean.data(), saved.rstd.data(), g.data(), dx.data(), others.data());
    return InputGradient{std::move(dx), std::pair{std::move(saved), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!weight.trainable() && !bias.trainable()) return;
    auto& [saved, g] = deferred;
    using G = std::remove_cvref_t<decltype(g)>;
    using Sum = detail::summed_t<G, accumulate_t<typename G::value_type>>;
    if (detail::row_terms_of(context, g)) return accumulate_terms<Sum>(context, saved, g);
    const auto gain = weight.template open_gradient<Sum>(g.device()), shift = bias.template open_gradient<Sum>(g.device());
    const bool first_gain = gain.first, first_shift = shift.first;
    kernels::layer_norm_backward_weight(g.device(), g.rows(), g.columns(), saved.x.data(), saved.mean.data(), saved.rstd.data(),
                                        g.data(), gain.data, shift.data, !(weight.trainable() ? first_gain : first_shift));
  }

  /// The same in operations on Variables, x [rows, width], inside of grad (operations/grad.hpp).
  auto formula(const auto& x) const {
    const auto centred = x - unflatten<0>(mean_columns(x), 1);
    const auto inverse = 1.0 / sqrt(mean_columns(square(centred)) + epsilon_);
    return add_row(times_row(times_column(centred, inverse), beside(x, weight)), beside(x, bias));
  }

  Parameter<> weight, bias;

 private:
  template <class X, class S>
  struct Saved {
    X x;
    S mean, rstd;
  };
  // Both gradients as sums of fixed terms, one after the other.
  template <class Sum, class Context, class Saved, class G>
  void accumulate_terms(const Context& context, const Saved& saved, const G& g) {
    const std::size_t width = g.columns();
    const Sum unused(g.device(), {width});
    detail::accumulate_rows<Sum>(context, weight, g, [&](std::size_t first, std::size_t count, auto* out, bool add) {
      kernels::layer_norm_backward_weight(g.device(), count, width, saved.x.data() + first * width, saved.mean.data() + first,
                                          saved.rstd.data() + first, g.data() + first * width, out, unused.data(), add);
    });
    detail::accumulate_rows<Sum>(context, bias, g, [&](std::size_t first, std::size_t count, auto* out, bool add) {
      kernels::column_sums<typename G::value_type>(g.device(), count, width, g.data() + first * width, width, out, add);
    });
  }
  double epsilon_;
};

/// y = x / sqrt(mean(x²) + epsilon) * weight, by row (arXiv:1910.07467). Parameter "weight" [width].
class RmsNorm : public Primitive<RmsNorm> {
 public:
  static constexpr bool fuses_addition = true;
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<1, std::size_t, double>, A...>
  explicit RmsNorm(const A&...) : RmsNorm(detail::refused_layer<RmsNorm>()) {
    static_assert(
        sizeof...(A) > 99,
        "weft: RmsNorm takes the context with its name and the width, in the constructor of your Module: `RmsNorm norm;`, "
        "norm(context / \"norm\", width)");
  }
  template <class Context>
  RmsNorm(const Context& context, std::size_t width, double epsilon = 1e-5)
      : weight(context, "weight", {width}, ones), epsilon_(epsilon) {}

  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    if constexpr (!detail::require_rows_of_norm<X>()) {
      return Result{detail::AlreadyRefused(), Nothing{}};
    } else {
      detail::require_width("rms_norm", x, weight);
      using S = detail::Statistics<X>;
      X y(x.device(), x.shape());
      S rstd(x.device(), {x.rows()});
      kernels::rms_norm_forward(x.device(), x.rows(), x.columns(), x.data(), weight.for_operand(x).data(), y.data(), rstd.data(),
                                epsilon_);
      return Result{std::move(y), Saved<X, S>{x, std::move(rstd)}};
    }
  }
  template <class Context, class X>
  auto forward_on_sum(const Context&, const X& x, const X& branch) const {
    detail::require_rows_of_norm<X>();
    detail::require_width("rms_norm", x, weight);
    using S = detail::Statistics<X>;
    X sum = detail::place_for_sum(x, branch), y(x.device(), sum.shape());
    S rstd(x.device(), {x.rows()});
    kernels::rms_norm_sum_forward(x.device(), x.rows(), x.columns(), x.data(), branch.data(), weight.for_operand(x).data(),
                                  sum.data(), y.data(), rstd.data(), epsilon_);
    return std::pair{sum, Result{std::move(y), Saved<X, S>{sum, std::move(rstd)}}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context&, Saved saved, const G& g, const std::type_identity_t<G>& others = G()) {
    const auto& x = saved.x;
    require_gradient_of<decltype(saved.x), G>();
    G dx = detail::place_for_gradient(x, others);
    kernels::rms_norm_backward_input(x.device(), x.rows(), x.columns(), x.data(), weight.for_operand(x).data(), saved.rstd.data(),
                                     g.data(), dx.data(), others.data());
    return InputGradient{std::move(dx), std::pair{std::move(saved), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!weight.trainable()) return;
    const auto& saved = deferred.first;
    const auto& g = deferred.second;
    using G = std::remove_cvref_t<decltype(g)>;
    const std::size_t width = g.columns();
    const auto sum = [&](std::size_t first, std::size_t count, auto* out, bool add) {
      kernels::rms_norm_backward_weight(g.device(), count, width, saved.x.data() + first * width, saved.rstd.data() + first,
                                        g.data() + first * width, out, add);
    };
    detail::accumulate_rows<detail::summed_t<G, accumulate_t<typename G::value_type>>>(context, weight, g, sum);
  }

  /// The same in operations on Variables, x [rows, width], inside of grad (operations/grad.hpp).
  auto formula(const auto& x) const {
    return times_row(times_column(x, 1.0 / sqrt(mean_columns(square(x)) + epsilon_)), beside(x, weight));
  }

  Parameter<> weight;

 private:
  template <class X, class S>
  struct Saved {
    X x;
    S rstd;
  };
  double epsilon_;
};

/// RmsNorm over each head of x [tokens, heads · head_width], with one gain for all heads: the norm of queries and keys (Qwen3,
/// and Dehghani et al., arXiv:2302.05442). An axis may shard tokens or heads; the gain's gradient is then Partial. Parameter
/// "weight" [head_width]. Throws ShapeError unless the columns are whole heads.
class HeadRmsNorm : public Primitive<HeadRmsNorm> {
 public:
  template <class Context>
  HeadRmsNorm(const Context& context, std::size_t head_width, double epsilon = 1e-5)
      : weight(context, "weight", {head_width}, ones), head_width_(head_width), epsilon_(epsilon) {}

  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    require_not_partial<X>();
    if (x.columns() % head_width_ != 0)
      throw_error<ShapeError>(
          {detail::call_text("norm of heads", {x}), ": the columns are not whole heads of width ", head_width_});
    using S = detail::Statistics<X>;
    X y(x.device(), x.shape());
    S rstd(x.device(), {x.size() / head_width_});
    kernels::rms_norm_forward(x.device(), rstd.size(), head_width_, x.data(), weight.for_operand(x).data(), y.data(), rstd.data(),
                              epsilon_);
    return Result{std::move(y), Saved<X, S>{x, std::move(rstd)}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context&, Saved saved, const G& g) {
    require_gradient_of<decltype(saved.x), G>();
    G dx(g.device(), g.shape());
    kernels::rms_norm_backward_input(g.device(), saved.rstd.size(), head_width_, saved.x.data(),
                                     weight.for_operand(saved.x).data(), saved.rstd.data(), g.data(), dx.data());
    return InputGradient{std::move(dx), std::pair{std::move(saved), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!weight.trainable()) return;
    const auto& saved = deferred.first;
    const auto& g = deferred.second;
    using G = std::remove_cvref_t<decltype(g)>;
    using Sum = detail::summed_t<G, accumulate_t<typename G::value_type>>;
    if constexpr (shard_dim<placement_t<G, tp>> == 1)
      if (g.device().sum_terms() != 0) return accumulate_terms<Sum>(context, saved, g);
    const std::size_t columns = g.columns(), heads = columns / head_width_;
    detail::accumulate_rows<Sum>(context, weight, g, [&](std::size_t first, std::size_t count, auto* out, bool add) {
      kernels::rms_norm_backward_weight(g.device(), count * heads, head_width_, saved.x.data() + first * columns,
                                        saved.rstd.data() + first * heads, g.data() + first * columns, out, add);
    });
  }

  Parameter<> weight;

 private:
  template <class X, class S>
  struct Saved {
    X x;
    S rstd;
  };
  // The sum over heads that tp cuts, made at once: a term is a piece of the heads.
  template <class Sum, class Context, class Saved, class G>
  void accumulate_terms(const Context& context, const Saved& saved, const G& g) {
    using T = typename G::value_type;
    using A = accumulate_t<T>;
    using Exec = typename G::execution_space;
    auto& device = g.device();
    const std::size_t columns = g.columns(), heads = columns / head_width_, terms = device.sum_terms();
    detail::require_even_terms("heads", heads, context.size(tp{}), terms);
    const std::size_t width = columns / terms, here = heads / terms;  // of a term
    detail::accumulate_rows<replace_t<Sum, Invariant<tp>>>(
        context, weight, g, [&](std::size_t first, std::size_t count, A* out, bool add) {
          const Tensor<T, Exec> x(device, {count, width}), dy(device, {count, width});
          const Tensor<A, Exec> rstd(device, {count, here});
          const auto sum = detail::sum_of_fixed_terms<Tensor<A, Exec, Partial<tp>>>(
              context.comm(tp{}), device, {head_width_}, [&](std::size_t term, A* to) {
                const std::size_t at = first * columns + term * width;
                detail::copy_rows(device, count, width, saved.x.data() + at, columns, x.data(), width);
                detail::copy_rows(device, count, width, g.data() + at, columns, dy.data(), width);
                detail::copy_rows(device, count, here, saved.rstd.data() + first * heads + term * here, heads, rstd.data(), here);
                kernels::rms_norm_backward_weight(device, count * here, head_width_, x.data(), rstd.data(), dy.data(), to, false);
              });
          if (add) kernels::add<A>(device, head_width_, out, sum.data(), out);
          else kernels::cast<A, A>(device, head_width_, sum.data(), out);
        });
  }
  std::size_t head_width_;
  double epsilon_;
};

}  // namespace weft
