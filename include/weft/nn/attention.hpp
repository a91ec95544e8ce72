// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal attention with multi-head or grouped-query heads. The core has no parameters and works on whole heads, so it is
// local to a rank however the heads are cut over tp; it needs whole sequences.

#include <tuple>
#include <utility>

#include <weft/kernels/attention.hpp>
#include <weft/kernels/rope.hpp>
#include <weft/nn/layer.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/rows.hpp>

namespace weft {

/// Heads of the whole model.
struct Heads {
  std::size_t query = 1, key_value = 1, width = 1;
};

namespace detail {

inline void require_heads(const Heads& heads, std::size_t ranks) {
  if (heads.query % heads.key_value != 0)
    throw LayoutError("heads(" + std::to_string(heads.query) + ") % key-value heads(" + std::to_string(heads.key_value) + ") != 0");
  if (heads.query % ranks != 0) throw LayoutError("heads(" + std::to_string(heads.query) + ") % tp(" + std::to_string(ranks) + ") != 0: a rank holds whole heads");
  if (heads.key_value % ranks != 0 && ranks % heads.key_value != 0)
    throw LayoutError("key-value heads(" + std::to_string(heads.key_value) + ") neither divide into nor repeat over tp(" + std::to_string(ranks) + ")");
}

// This rank's heads: query heads are cut by tp; key-value heads too, or held alike by tp / key_value ranks.
template <class Context>
Heads local_heads(const Context& context, const Heads& heads) {
  const std::size_t ranks = context.size(tp{});
  require_heads(heads, ranks);
  return {heads.query / ranks, std::max<std::size_t>(1, heads.key_value / ranks), heads.width};
}

template <class X>
std::size_t sequences_of(const X& x, std::size_t length) {
  if (length == 0 || x.rows() % length != 0)
    throw ShapeError("attention over " + std::to_string(x.rows()) + " rows that are not whole sequences of " + std::to_string(length) + " tokens");
  return x.rows() / length;
}

}  // namespace detail

/// softmax(q kᵀ / √width, causal) v by tiles (arXiv:2205.14135); statistics in accumulate_t. Takes one fused tensor
/// [tokens, (query + 2 key_value) width], query first, or a tuple (query, key, value) of [tokens, heads · width]; returns
/// [tokens, query · width]. Under tp all of these are this rank's heads.
class CausalAttention {
 public:
  template <class Context>
  CausalAttention(const Context& context, const Heads& heads) : heads_(detail::local_heads(context, heads)) {}

  template <class Context, AnyTensor X>
  auto forward(const Context& context, const X& qkv) const {
    const std::size_t q = heads_.query * heads_.width, kv = heads_.key_value * heads_.width;
    if (qkv.columns() != q + 2 * kv) throw ShapeError("attention of fused " + qkv.shape().text() + ", expected " + std::to_string(q + 2 * kv) + " columns");
    return run(context, qkv, qkv, qkv.data(), qkv.data() + q, qkv.data() + q + kv, qkv.columns(), qkv.columns());
  }
  template <class Context, class X>
  auto forward(const Context& context, const std::tuple<X, X, X>& in) const {
    const X &q = std::get<0>(in), &k = std::get<1>(in), &v = std::get<2>(in);
    return run(context, q, in, q.data(), k.data(), v.data(), q.columns(), k.columns());
  }

  template <class Context, class Saved, class G>
  auto backward(const Context& context, Saved saved, const G& g) const {
    require_gradient_of<decltype(saved.output), G>();
    if constexpr (AnyTensor<decltype(saved.input)>) {
      const auto& qkv = saved.input;
      const std::size_t q = heads_.query * heads_.width, kv = heads_.key_value * heads_.width, stride = qkv.columns();
      G d(qkv.device(), qkv.shape());
      kernel(context, saved, g, qkv.data(), stride, qkv.data() + q, stride, qkv.data() + q + kv, stride, d.data(), stride, d.data() + q, stride, d.data() + q + kv, stride);
      return d;
    } else {
      const auto& [q, k, v] = saved.input;
      std::tuple<G, G, G> d{G(q.device(), q.shape()), G(k.device(), k.shape()), G(v.device(), v.shape())};
      auto& [dq, dk, dv] = d;
      kernel(context, saved, g, q.data(), q.columns(), k.data(), k.columns(), v.data(), v.columns(), dq.data(), q.columns(), dk.data(), k.columns(), dv.data(), v.columns());
      return d;
    }
  }
  void for_each_parameter(auto&&) {}

 private:
  template <class Input, class Output, class S>
  struct Saved {
    Input input;
    Output output;
    S log_sum_exp;  // [sequences, heads, length]
  };

  template <class Context, class X, class Input, class T>
  auto run(const Context& context, const X& like, const Input& input, const T* q, const T* k, const T* v, std::size_t q_stride, std::size_t kv_stride) const {
    require_not_partial<X>();
    const std::size_t length = context.env.length, sequences = detail::sequences_of(like, length);
    using S = detail::Statistics<X>;
    X y(like.device(), {like.rows(), heads_.query * heads_.width});
    S log_sum_exp(like.device(), {sequences, heads_.query, length});
    kernels::attention_forward(like.device(), sequences, length, heads_.query, heads_.key_value, heads_.width, q, q_stride, k, kv_stride, v, kv_stride, y.data(), y.columns(),
                               log_sum_exp.data(), true);
    return Result{y, Saved<Input, X, S>{input, y, std::move(log_sum_exp)}};
  }
  template <class Context, class Saved, class G, class T>
  void kernel(const Context& context, const Saved& saved, const G& g, const T* q, std::size_t qs, const T* k, std::size_t ks, const T* v, std::size_t vs, T* dq, std::size_t dqs,
              T* dk, std::size_t dks, T* dv, std::size_t dvs) const {
    const std::size_t length = context.env.length;
    kernels::attention_backward(g.device(), g.rows() / length, length, heads_.query, heads_.key_value, heads_.width, q, qs, k, ks, v, vs, saved.output.data(),
                                saved.output.columns(), g.data(), g.columns(), saved.log_sum_exp.data(), dq, dqs, dk, dks, dv, dvs, true);
  }

  Heads heads_;
};

/// Rotary positions (arXiv:2104.09864) on query and key of a tuple (query, key, value), Hugging Face's half-split form.
class Rotary {
 public:
  explicit Rotary(std::size_t head_width, double base = 10000) : head_width_(head_width), base_(base) {
    if (head_width % 2 != 0) throw LayoutError("rotary positions need an even head width, not " + std::to_string(head_width));
  }

  template <class Context, class X>
  auto forward(const Context& context, const std::tuple<X, X, X>& in) const {
    require_not_partial<X>();
    return Result{turn(context, in, false), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const std::tuple<G, G, G>& g) const { return turn(context, g, true); }
  void for_each_parameter(auto&&) {}

 private:
  template <class Context, class X>
  auto turn(const Context& context, const std::tuple<X, X, X>& in, bool inverse) const {
    const X &q = std::get<0>(in), &k = std::get<1>(in);
    const auto positions = positions_of(context, q);
    X q_out(q.device(), q.shape()), k_out(k.device(), k.shape());
    kernels::rope(q.device(), q.rows(), q.columns() / head_width_, head_width_, q.data(), q.columns(), q_out.data(), q.columns(), positions.data(), base_, inverse);
    kernels::rope(k.device(), k.rows(), k.columns() / head_width_, head_width_, k.data(), k.columns(), k_out.data(), k.columns(), positions.data(), base_, inverse);
    return std::tuple<X, X, X>{std::move(q_out), std::move(k_out), std::get<2>(in)};
  }

  std::size_t head_width_;
  double base_;
};

}  // namespace weft
