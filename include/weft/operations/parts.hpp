// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of tensors along a dim that the program names and no axis cuts, and tensors put together along one. Parts along dim 0
// share the elements; the others are copies.
//
//   auto [query, key, value] = chunk<1, 3>(matmul(x, fused));

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

template <class X, int Dim>
constexpr void require_dim_uncut() {
  static_assert(!sharded_along<X, Dim>,
                "weft: slice, chunk and concat count along a dim of the whole, but an axis cuts it, and ranks would take others: "
                "gather it first, to<Invariant<axis>>(x), on tensors (context, x), or take parts along another dim");
}

// g with zeros around it, in a tensor of this shape.
template <class G>
G slice_gradient(int dim, const Shape& shape, std::size_t first, const G& g) {
  const Around whole(shape, std::size_t(dim)), part(g.shape(), std::size_t(dim));
  if (whole.outer != part.outer || whole.inner != part.inner || first + part.extent > whole.extent)
    throw_error<ShapeError>(
        {call_text("slice_gradient", {shape, g}), ": ", first, " to ", first + part.extent, " along dim ", dim});
  G out(g.device(), shape);
  const std::size_t before = first * whole.inner, width = part.extent * whole.inner, all = whole.extent * whole.inner;
  const auto* from = g.data();
  auto* to = out.data();
  for_each_index(
      g.device(), {"copy", (g.size() + out.size()) * sizeof(typename G::value_type)}, whole.outer,
      KOKKOS_LAMBDA(const std::size_t row) {
        const auto* in = from + row * width;
        auto* row_out = to + row * all;
        for (std::size_t i = 0; i < before; ++i) row_out[i] = {};
        for (std::size_t i = 0; i < width; ++i) row_out[before + i] = in[i];
        for (std::size_t i = before + width; i < all; ++i) row_out[i] = {};
      });
  return out;
}

// Equal parts of a Variable, in one step of backward: their gradients go side by side into that of the whole.
template <class Context, int Dim, class X, std::size_t Parts>
struct RecordedChunks : TapeStep {
  RecordedChunks(ValueNode<X>* to, const Shape& of) : operand(to), shape(of) {}
  void apply(Tape& tape) {
    bool any = false;
    for (const ValueNode<X>& part : parts) any = any || bool(part);
    if (!any) return;
    const Context& context = tape.context().as<Context>();
    gradient_t<X> g(context.device(), shape);
    const Around whole(shape, std::size_t(Dim));
    const std::size_t width = whole.extent / Parts * whole.inner, all = whole.extent * whole.inner;
    for (std::size_t i = 0; i < Parts; ++i) {
      const bool given = bool(parts[i]);
      const auto part =
          given ? parts[i].take() : gradient_t<X>(g.device(), with_extent(shape, std::size_t(Dim), whole.extent / Parts));
      if (!given) fill_zero(g.device(), part.data(), part.size());
      copy_rows(g.device(), whole.outer, width, static_cast<const typename X::value_type*>(part.data()), width,
                g.data() + i * width, all);
    }
    operand->add(context, std::move(g));
  }
  ValueNode<X>* operand;
  Shape shape;
  ValueNode<X> parts[Parts];
};

}  // namespace detail

namespace operations {

/// Elements [first, first + count) along dim `Dim`, which no axis may cut; along dim 0 they share x's memory. Partial stays
/// Partial.
template <int Dim, AnyTensor X>
X slice(const X& x, std::size_t first, std::size_t count) {
  detail::require_dim_uncut<X, Dim>();
  detail::require_dim("slice", x, Dim);
  detail::require_even("slice", x.shape(), Dim);
  const detail::Around around(x.shape(), Dim);
  if (first > around.extent || count > around.extent - first)
    throw_error<ShapeError>(
        {detail::call_text("slice", {x}), ": there is no ", first, " to ", first + count, " along dim ", Dim});
  const Shape shape = detail::with_extent(x.shape(), Dim, count);
  if (around.outer == 1) return detail::view_of<X>(x, shape, first * around.inner);
  X out(x.device(), shape);
  detail::copy_rows(x.device(), around.outer, count * around.inner, x.data() + first * around.inner, around.extent * around.inner,
                    out.data(), count * around.inner);
  return out;
}
/// The gradient of x, given the gradient g of slice<Dim>(x, first, g's extent): g, with zeros around it.
template <int Dim, AnyTensor X, AnyTensor G>
G slice_gradient(const X& x, std::size_t first, const G& g) {
  require_gradient_of<X, G>();
  return detail::slice_gradient(Dim, x.shape(), first, g);
}

/// Tensors with equal placements, one after the other along dim `Dim`, which no axis may cut. Gradients: slices of g.
template <int Dim, AnyTensor X, AnyTensor... More>
X concat(const X& x, const More&... more) {
  constexpr bool alike = (std::is_same_v<X, More> && ...);
  static_assert(alike,
                "weft: concat: the tensors are placed differently, or hold different element types; bring them to one layout, "
                "to_layout_of(x, y), on tensors to_layout_of<X>(context, y), or type, cast<T>(y)");
  if constexpr (!alike) {
    return x;  // one error is enough
  } else {
    detail::require_dim_uncut<X, Dim>();
    detail::require_dim("concat", x, Dim);
    std::size_t extent = 0;
    for (const X* part : {&x, &more...}) {
      if (part->shape().rank() != x.shape().rank() || !(detail::with_extent(part->shape(), Dim, x.shape()[Dim]) == x.shape()))
        throw_error<ShapeError>({detail::call_text("concat", {x, more...}), ": the extents beside dim ", Dim, " differ"});
      detail::require_even("concat", part->shape(), Dim);
      extent += part->shape()[Dim];
    }
    X out(x.device(), detail::with_extent(x.shape(), Dim, extent));
    const detail::Around whole(out.shape(), Dim);
    std::size_t at = 0;
    for (const X* part : {&x, &more...}) {
      const std::size_t width = part->shape()[Dim] * whole.inner;
      detail::copy_rows(x.device(), whole.outer, width, static_cast<const typename X::value_type*>(part->data()), width,
                        out.data() + at, whole.extent * whole.inner);
      at += width;
    }
    return out;
  }
}

/// `Parts` equal parts along dim `Dim`, which no axis may cut. The gradient is their concat<Dim>.
template <int Dim, std::size_t Parts, AnyTensor X>
std::array<X, Parts> chunk(const X& x) {
  detail::require_dim("chunk", x, Dim);
  const std::size_t extent = x.shape()[Dim];
  if (extent % Parts != 0)
    throw_error<ShapeError>({detail::call_text("chunk", {x}), ": dim ", Dim, " is not ", Parts, " equal parts"});
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<X, Parts>{slice<Dim>(x, I * (extent / Parts), extent / Parts)...};
  }
  (std::make_index_sequence<Parts>());
}

// The same on Variables.
template <int Dim, class C, class X>
auto slice(const Variable<C, X>& x, std::size_t first, std::size_t count) {
  return detail::record_by_gradient(x, slice<Dim>(x.value(), first, count), [shape = x.shape(), first](const auto& g) {
    return detail::slice_gradient(Dim, shape, first, g);
  });
}
template <int Dim, std::size_t Parts, class C, class X>
auto chunk(const Variable<C, X>& x) {
  const auto values = chunk<Dim, Parts>(x.value());
  detail::RecordedChunks<C, Dim, X, Parts>* step = nullptr;
  if (x.has_gradient() && x.tape().records())
    step = &x.tape().template record<detail::RecordedChunks<C, Dim, X, Parts>>(x.node(), x.shape());
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Variable<C, X>, Parts>{Variable<C, X>(values[I], step != nullptr ? &step->parts[I] : nullptr, x.tape())...};
  }
  (std::make_index_sequence<Parts>());
}
template <int Dim, class C, class X, class... More>
auto concat(const Variable<C, X>& x, const Variable<C, More>&... more) {
  std::size_t at = 0;
  const auto part = [&at](const auto& operand) {
    const std::size_t first = at, count = operand.shape()[Dim];
    at += count;
    return detail::from(operand, [first, count](const auto&, const auto& g) { return slice<Dim>(g, first, count); });
  };
  auto y = concat<Dim>(x.value(), more.value()...);
  if constexpr (!(std::is_same_v<X, More> && ...)) return detail::AlreadyRefused();
  else
    return std::apply([&](auto... from) { return detail::record(x, std::move(y), std::move(from)...); },
                      std::tuple{part(x), part(more)...});
}

}  // namespace operations

}  // namespace weft
