// SPDX-License-Identifier: Apache-2.0
#pragma once
// User-style layers and heads for generated models, in addition to weft's and to those that generate.py creates.

#include "search/harness.hpp"
#include "support/layers.hpp"

namespace search {

struct InverseRoot {
  double epsilon, count = 1;
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return A(1) / Kokkos::sqrt(x / A(count) + A(epsilon));
  }
};
struct Cube {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return x * x * x;
  }
};

template <class X>
using value_t = typename std::remove_cvref_t<X>::value_type;

/// An RMS norm by typed operations.
struct OwnNorm {
  Parameter<> gain;
  OwnNorm(const auto& context, std::size_t columns) : gain(context, "gain", {columns}, normal(1)) {}
  auto forward(const auto&, const auto& x) const {
    const auto inverse = map(mean_columns(square(x)), InverseRoot{1e-5});
    return Result{times_row(times_column(x, inverse), gain.for_operand(x)), std::pair{x, inverse}};
  }
  template <class X, class R, class G>
  auto backward(const auto& context, std::pair<X, R> saved, const G& g) {
    const auto& [x, inverse] = saved;
    gain.accumulate(context, sum_rows(times(times_column(x, inverse), g)));
    const auto dn = times_row(g, gain.for_operand(x));
    const auto d_inverse = sum_columns(times(x, dn), Of::gradients);
    const auto d_mean = scale(times(map(inverse, Cube{}), d_inverse), -0.5);
    return add(times_column(dn, inverse), scale(times(x, mean_columns_gradient(x, d_mean)), 2));
  }
};

/// The same with loops over the elements of rows; the gradient of the gain by typed operations.
struct RawNorm {
  Parameter<> gain;
  RawNorm(const auto& context, std::size_t columns) : gain(context, "gain", {columns}, normal(1)) {}
  template <class X>
  static X normed(const X& x) {
    require_not_partial<X>();
    X y(x.device(), x.shape());
    for (std::size_t row = 0; row < x.rows(); ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < x.columns(); ++i) sum += x.data()[row * x.columns() + i] * x.data()[row * x.columns() + i];
      for (std::size_t i = 0; i < x.columns(); ++i)
        y.data()[row * x.columns() + i] = x.data()[row * x.columns() + i] / std::sqrt(sum / double(x.columns()) + 1e-5);
    }
    return y;
  }
  auto forward(const auto&, const auto& x) const { return Result{times_row(normed(x), gain.for_operand(x)), x}; }
  template <class X, class G>
  auto backward(const auto& context, X x, const G& g) {
    const X n = normed(x);
    gain.accumulate(context, sum_rows(times(n, g)));
    const auto dn = times_row(g, gain.for_operand(x));
    G dx(g.device(), g.shape());
    const std::size_t columns = x.columns();
    for (std::size_t row = 0; row < x.rows(); ++row) {
      double sum = 0, product = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
        sum += x.data()[i] * x.data()[i], product += n.data()[i] * dn.data()[i];
      const double inverse = 1 / std::sqrt(sum / double(columns) + 1e-5);
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
        dx.data()[i] = inverse * (dn.data()[i] - n.data()[i] * product / double(columns));
    }
    return dx;
  }
};

/// A norm of each head with one gain for all, and of query and key before rotary positions.
struct HeadNorm {
  Parameter<> gain;
  std::size_t width;
  HeadNorm(const auto& context, std::size_t head_width) : gain(context, "gain", {head_width}, normal(1)), width(head_width) {}
  auto forward(const auto&, const auto& x) const {
    const auto heads = split_heads(x, width);
    const auto inverse = map(mean_each_head(square(heads)), InverseRoot{1e-5});
    return Result{merge_heads(times_heads(times_each_head(heads, inverse), gain.for_operand(heads))), std::pair{heads, inverse}};
  }
  template <class X, class R, class G>
  auto backward(const auto& context, std::pair<X, R> saved, const G& gradient) {
    const auto& [x, inverse] = saved;
    const auto g = split_heads(gradient, width);
    gain.accumulate(context, sum_heads(times(times_each_head(x, inverse), g), Of::gradients));
    const auto dn = times_heads(g, gain.for_operand(x));
    const auto d_mean = scale(times(map(inverse, Cube{}), sum_each_head(times(x, dn))), -0.5);
    return merge_heads(add(times_each_head(dn, inverse), scale(times(x, mean_each_head_gradient(x, d_mean)), 2)));
  }
};
struct QueryKeyNorm {
  HeadNorm query, key;
  QueryKeyNorm(const auto& context, std::size_t width) : query(context / "query", width), key(context / "key", width) {}
  template <class X>
  auto forward(const auto& context, const std::tuple<X, X, X>& in) const {
    auto q = query.forward(context, std::get<0>(in));
    auto k = key.forward(context, std::get<1>(in));
    return Result{std::tuple{q.output, k.output, std::get<2>(in)}, std::pair{q.saved, k.saved}};
  }
  template <class Q, class K, class G>
  auto backward(const auto& context, std::pair<Q, K> saved, const std::tuple<G, G, G>& g) {
    auto dq = query.backward(context, std::move(saved.first), std::get<0>(g));
    auto dk = key.backward(context, std::move(saved.second), std::get<1>(g));
    return std::tuple{dq, dk, std::get<2>(g)};
  }
};

/// Cross-entropy, and a penalty on log Σ exp of the logits.
struct ZLossHead {
  OwnNorm norm;
  Parameter<Shard<tp, 0>> table;
  static constexpr double factor = 0.05;
  ZLossHead(const auto& context, std::size_t vocabulary, std::size_t width)
      : norm(context / "norm", width), table(context, "table", {vocabulary, width}, normal(0.2), ParameterSharding{{}, true}) {}
  auto logits(const auto& context, const auto& x) const {
    const auto inside = to<Replicated<tp>>(context, norm.forward(context, x).output);
    return matmul(inside, table.for_operand(inside));
  }
  auto forward(const auto& context, const auto& x, const auto& targets) const {
    const auto vocabulary = table.state().global()[0];
    auto normed = norm.forward(context, x);
    const auto inside = to<Replicated<tp>>(context, normed.output);
    const auto z = matmul(inside, table.for_operand(inside));
    auto cross = cross_entropy(context, z, targets, vocabulary);
    const auto lse = log_sum_exp(context, z, vocabulary);
    return Result{cross.output + sum_losses(context, scale(square(lse), factor), targets),
                  std::tuple{normed.saved, normed.output, z, lse, cross.saved, targets}};
  }
  template <class N, class Y, class Z, class L, class D, class T, class G>
  auto backward(const auto& context, std::tuple<N, Y, Z, L, D, T> saved, const G& g) {
    auto& [norm_saved, normed, z, lse, difference, targets] = saved;
    const auto d_lse = mask_rows(scale(times_scalar(lse, g), 2 * factor), targets);
    const auto dz = add(times_scalar(difference, to<Replicated<tp>>(context, g)),
                        log_sum_exp_gradient(context, z, table.state().global()[0], lse, d_lse));
    const auto inside = to<Replicated<tp>>(context, normed);
    table.accumulate(context, matmul_weight_gradient(dz, inside));
    return norm.backward(context, std::move(norm_saved),
                         to_layout_of<gradient_t<Y>>(context, matmul_input_gradient(dz, table.for_operand(inside))));
  }
};

/// Half the squared distance of the output from the target's one-hot vector, by token, in loops. `mean`: the mistake of dividing
/// by the tokens that are here.
template <bool mean = false>
struct SquareHead {
  LayerNorm norm;
  Linear<> project;
  template <class Z>
  using losses_of = Z;  // [tokens], placed as the rows are
  template <class Z>
  static auto here(const auto& context, const Z&, const auto& targets) {
    if constexpr (shard_dim<placement_t<Z, tp>> == 0) return to<Shard<tp, 0>>(context, targets);
    else return targets;
  }
  auto forward(const auto& context, const auto& x, const auto& targets) const {
    auto normed = norm.forward(context, x);
    auto z = project.forward(context, normed.output);
    using Z = decltype(z.output);
    const auto mine = here(context, z.output, targets);
    Z difference(x.device(), z.output.shape());
    losses_of<Z> losses(x.device(), {x.rows()});
    for (std::size_t row = 0; row < x.rows(); ++row) {
      losses.data()[row] = 0;
      for (std::size_t i = 0; i < difference.columns(); ++i) {
        const std::size_t at = row * difference.columns() + i;
        difference.data()[at] =
            mine.data()[row] < 0 ? 0
                                 : (z.output.data()[at] - (std::size_t(mine.data()[row]) == i)) / (mean ? double(x.rows()) : 1);
        losses.data()[row] += difference.data()[at] * difference.data()[at] / 2 * (mean ? double(x.rows()) : 1);
      }
    }
    return Result{sum_losses(context, losses, mine), std::tuple{std::move(normed.saved), std::move(z.saved), difference}};
  }
  auto logits(const auto& context, const auto& x) const {
    return project.forward(context, norm.forward(context, x).output).output;
  }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    auto& [normed, z, difference] = saved;
    using Z = std::remove_reference_t<decltype(difference)>;
    gradient_t<Z> dz(g.device(), difference.shape());
    for (std::size_t i = 0; i < dz.size(); ++i) dz.data()[i] = difference.data()[i] * g.data()[0];
    auto first = weft::backward_input(project, context, std::move(z), dz);
    auto second = weft::backward_input(norm, context, std::move(normed), first.input_gradient);
    return InputGradient{std::move(second.input_gradient), std::pair{std::move(first.deferred), std::move(second.deferred)}};
  }
  void backward_weight(const auto& context, auto deferred) {
    weft::backward_weight(project, context, std::move(deferred.first));
    weft::backward_weight(norm, context, std::move(deferred.second));
  }
};

/// A layer without parameters that applies one raw function to each element, for places where it is a mistake.
struct RawGelu {
  auto forward(const auto&, const auto& x) const {
    auto y = std::remove_cvref_t<decltype(x)>(x.device(), x.shape());
    for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = std::tanh(x.data()[i]);
    return Result{y, x};
  }
  template <class X>
  auto backward(const auto&, X x, const auto& g) const {
    auto dx = std::remove_cvref_t<decltype(g)>(g.device(), g.shape());
    for (std::size_t i = 0; i < x.size(); ++i) dx.data()[i] = g.data()[i] * (1 - std::tanh(x.data()[i]) * std::tanh(x.data()[i]));
    return dx;
  }
};

/// Rows passed to a dropout one head at a time, which loses the meaning of dim 0.
struct HeadRowsDropout {
  Dropout dropout;
  std::size_t width;
  HeadRowsDropout(const auto& context, std::size_t head_width) : dropout(context, 0.2), width(head_width) {}
  template <class X>
  auto turned(const X& x, const Shape& shape) const {
    return X(x.device(), shape, x.buffer(), 0);
  }
  auto forward(const auto& context, const auto& x) const {
    return Result{turned(dropout.forward(context, turned(x, {x.size() / width, width})).output, x.shape()), Nothing{}};
  }
  auto backward(const auto& context, Nothing, const auto& g) const {
    return turned(dropout.backward(context, Nothing{}, turned(g, {g.size() / width, width})), g.shape());
  }
};

}  // namespace search
