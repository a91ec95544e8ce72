// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors in other shapes, and parts of their columns. Views share the elements; a view whose placements would no longer be true
// is refused.
//
//   auto by_heads = split_heads(x, width);   // [tokens, heads, width]; Shard<tp, 1> cuts heads

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <weft/operations/elementwise.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {
template <class X>
constexpr void require_whole_columns() {
  static_assert(!columns_cut<X>,
                "weft: this operation counts columns of the whole, but an axis cuts them, and ranks would take others: gather "
                "them first, to<Invariant<axis>>(x), on tensors (context, x), or make each part in its own Linear");
}
inline void require_columns(const char* operation, NamedOperand x, std::size_t first, std::size_t count) {
  const std::size_t columns = x.shape().columns();
  if (first > columns || count > columns - first)
    throw_error<ShapeError>({call_text(operation, {x}), ": there are no columns ", first, " to ", first + count});
}
}  // namespace detail

namespace operations {

/// x [tokens, heads * width] as [tokens, heads, width], sharing its elements. Any placement along dims 0 and 1: an axis that cuts
/// the columns of x cuts the heads. Throws ShapeError if a rank does not hold whole heads, LayoutError for columns cut by
/// segments. The gradient is merge_heads(g).
template <AnyTensor X>
X split_heads(const X& x, std::size_t width) {
  static_assert(!detail::sharded_along<X, 2>, "weft: split_heads takes a matrix, but an axis cuts dim 2");
  detail::require_dims("split_heads", x, 2);
  if (width == 0 || x.columns() % width != 0)
    throw_error<ShapeError>({detail::call_text("split_heads", {x}), ": the columns are not whole heads of width ", width});
  if (x.shape().sharding(1) == DimSharding::segments)
    throw_error<LayoutError>({"split_heads: dim 1 of ", x.shape().text(),
                              " is cut by segments, which need not be whole heads; make query, key and value in a Linear each"});
  Shape shape{x.shape()[0], x.columns() / width, width};
  shape.set_sharding(0, x.shape().sharding(0)).set_sharding(1, x.shape().sharding(1));
  return detail::view_of<X>(x, shape);
}

/// x [tokens, heads, width] as [tokens, heads * width], sharing its elements. An axis may cut tokens or heads, not the width. The
/// gradient is split_heads(g, width).
template <AnyTensor X>
X merge_heads(const X& x) {
  static_assert(!detail::sharded_along<X, 2>,
                "weft: merge_heads: an axis cuts the width of heads (dim 2), so merged they would not be a cut of the columns");
  detail::require_dims("merge_heads", x, 3);
  Shape shape{x.shape()[0], x.shape()[1] * x.shape()[2]};
  shape.set_sharding(0, x.shape().sharding(0)).set_sharding(1, x.shape().sharding(1));
  return detail::view_of<X>(x, shape);
}

/// x in another shape with the same number of elements, which are shared. Only dim 0 may be cut: each rank's part is then one
/// part of the whole in the new shape too, except over cp, whose ranks have two chunks of each sequence: there, and if dim 0 is
/// padded, dim 0 must stay. The gradient is reshape(g, x.shape()).
template <AnyTensor X>
X reshape(const X& x, Shape shape) {
  static_assert(!detail::columns_cut<X>,
                "weft: reshape: an axis cuts a dim beyond 0, and in another shape it would cut something else; use split_heads "
                "and merge_heads");
  constexpr bool chunks = std::is_same_v<placement_t<X, cp>, Shard<cp, 0>>;
  if (x.shape().rank() == 0 || shape.rank() == 0 || shape.size() != x.size())
    throw_error<ShapeError>({detail::call_text("reshape", {x}), " to ", shape.text(), ": the number of elements must stay"});
  if (shape[0] != x.shape()[0] && (chunks || x.shape().sharding(0) != DimSharding::even))
    throw_error<ShapeError>({detail::call_text("reshape", {x}), " to ", shape.text(), ": dim 0 must stay, because ",
                             chunks ? "cp cuts it in two chunks of each sequence" : "it is not cut evenly"});
  for (std::size_t dim = 1; dim < x.shape().rank(); ++dim)
    if (x.shape().sharding(dim) != DimSharding::even)
      throw_error<LayoutError>({detail::call_text("reshape", {x}), ": dim ", dim, " is padded"});
  return detail::view_of<X>(x, shape.set_sharding(0, x.shape().sharding(0)));
}

/// Columns [first, first + count) of x [rows, columns]; no axis may cut the columns. Partial stays Partial.
template <AnyTensor X>
X slice_columns(const X& x, std::size_t first, std::size_t count) {
  detail::require_whole_columns<X>();
  detail::require_dims("slice_columns", x, 2);
  detail::require_columns("slice_columns", x, first, count);
  X out(x.device(), detail::with_extent(x.shape(), 1, count));
  detail::copy_rows(x.device(), x.rows(), count, x.data() + first, x.columns(), out.data(), count);
  return out;
}
/// The gradient of x, given the gradient `g` [rows, count] of slice_columns(x, first, count): g, with zeros around it.
template <AnyTensor X, AnyTensor G>
G slice_columns_gradient(const X& x, std::size_t first, const G& g) {
  require_gradient_of<X, G>();
  detail::require_whole_columns<X>();
  detail::require_columns("slice_columns_gradient", x, first, g.columns());
  if (g.rows() != x.rows()) throw_error<ShapeError>({detail::call_text("slice_columns_gradient", {x, g}), ": the rows differ"});
  G out(x.device(), x.shape());
  detail::fill_zero(x.device(), out.data(), out.size());
  detail::copy_rows(x.device(), x.rows(), g.columns(), g.data(), g.columns(), out.data() + first, x.columns());
  return out;
}

/// The columns of x [rows, a] followed by those of y [rows, b], [rows, a + b]; placed alike, and no axis cuts the columns.
/// Gradients: slice_columns(g, 0, a) and slice_columns(g, a, b).
template <AnyTensor X, AnyTensor Y>
X concat_columns(const X& x, const Y& y) {
  static_assert(std::is_same_v<X, Y>,
                "weft: concat_columns: the two are placed differently, or hold different element types; bring one to the other's "
                "layout, to_layout_of(x, y), on tensors to_layout_of<X>(context, y), or type, cast<T>(y)");
  if constexpr (!std::is_same_v<X, Y>) {
    return x;  // one error is enough
  } else {
    detail::require_whole_columns<X>();
    detail::require_dims("concat_columns", x, 2);
    detail::require_dims("concat_columns", y, 2);
    if (x.rows() != y.rows()) throw_error<ShapeError>({detail::call_text("concat_columns", {x, y}), ": the rows differ"});
    if (x.shape().sharding(1) != DimSharding::even || y.shape().sharding(1) != DimSharding::even)
      throw_error<LayoutError>({detail::call_text("concat_columns", {x, y}), ": columns are padded"});
    const std::size_t columns = x.columns() + y.columns();
    X out(x.device(), detail::with_extent(x.shape(), 1, columns));
    detail::copy_rows(x.device(), x.rows(), x.columns(), x.data(), x.columns(), out.data(), columns);
    detail::copy_rows(x.device(), x.rows(), y.columns(), y.data(), y.columns(), out.data() + x.columns(), columns);
    return out;
  }
}

/// z [tokens, its columns here], cut over tp along its columns and padded if tp does not divide them, as a whole [tokens,
/// columns] without the padding, Invariant<tp>; z itself if tp is not in force. Throws ShapeError if `columns` are more than
/// there are, LayoutError for columns cut by segments or held alike. Communication: one all-gather. The gradient is
/// gather_columns_gradient(context, z, g).
template <class Context, AnyTensor Z>
auto gather_columns(const Context& context, const Z& z, std::size_t columns) {
  if constexpr (!Context::has(tp{}) || !std::is_same_v<placement_t<Z, tp>, Shard<tp, 1>>) {
    static_assert(
        !detail::any_partial<Z>,
        "weft: gather_columns: z is Partial, a term of a sum: reduce it first, to<Invariant<axis>>(z), on tensors (context, z)");
    return z;
  } else {
    Shape even = z.shape();
    if (even.sharding(1) == DimSharding::padded) even.set_sharding(1, DimSharding::even);
    const auto all = to<Invariant<tp>>(context, detail::view_of<Z>(z, even));
    detail::require_columns("gather_columns", all, 0, columns);
    std::remove_const_t<decltype(all)> whole(z.device(), {all.rows(), columns});
    detail::copy_rows(z.device(), all.rows(), columns, all.data(), all.columns(), whole.data(), columns);
    return whole;
  }
}
/// The gradient of z, given g [tokens, columns]: this rank's columns of g, zero in the padding.
template <class Context, AnyTensor Z, AnyTensor G>
gradient_t<Z> gather_columns_gradient(const Context& context, const Z& z, const G& g) {
  if constexpr (!Context::has(tp{}) || !std::is_same_v<placement_t<Z, tp>, Shard<tp, 1>>) {
    return g;
  } else {
    using T = typename Z::value_type;
    gradient_t<Z> dz(z.device(), z.shape());
    const std::size_t here = z.columns(), first = std::min(g.columns(), context.rank(tp{}) * here),
                      count = std::min(here, g.columns() - first);
    detail::fill_zero<typename Z::execution_space, T>(z.device(), dz.data(), dz.size());
    if (count != 0)
      detail::copy_rows(z.device(), z.rows(), count, static_cast<const T*>(g.data()) + first, g.columns(), dz.data(), here);
    return dz;
  }
}

}  // namespace operations

}  // namespace weft
