// SPDX-License-Identifier: Apache-2.0
#pragma once
// The global index of a tensor's local elements: their rows and columns in the global batch. Positions and dropout masks are
// functions of it, so that they do not depend on the layout.
//
//   const auto positions = positions_of(context, x);   // [rows], int32

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/gather_lists.hpp>
#include <weft/context/context.hpp>
#include <weft/context/key_value_cache.hpp>
#include <weft/core/text.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/attention_mask.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

/// A rank's piece of a dim that an axis cuts, with the uncut dims behind it as one.
struct DimPiece {
  std::size_t extent = 1, first = 0, whole = 1;
};
/// A part of a tensor that is a block of a matrix: element (r, c), at offset + r * columns + c, has the global index
/// (first_row + r) * row_width + first_column + c.
struct ElementBlock {
  std::size_t offset, rows, columns, first_row, first_column, row_width;
};

/// The position of a local tensor in the global batch.
struct GlobalIndex {
  std::size_t first_row = 0;    ///< token of the global batch; the micro-batch's first if cp cuts sequences
  std::size_t skipped = 0;      ///< rows of this rank's part of the micro-batch before the tensor, if cp cuts sequences
  std::size_t rows_of_all = 0;  ///< of the whole micro-batch on this data rank
  Zigzag cut;
  std::array<DimPiece, Shape::max_rank> dims = {};  ///< of a row: its dims before a cut as one, then the `cuts` dims that are cut
  std::size_t cuts = 0;

  /// The token of the global batch of local row i.
  KOKKOS_INLINE_FUNCTION std::size_t row(std::size_t i) const { return first_row + (cut.ranks == 1 ? i : cut.row(skipped + i)); }

  /// Calls f(local row, token of the global batch, count) for each run of rows that follow each other in the batch as well.
  template <class F>
  void for_each_run(std::size_t rows, F&& f) const {
    if (cut.ranks == 1) return f(std::size_t(0), first_row, rows);
    for (std::size_t i = 0; i < rows;) {
      const std::size_t count = std::min(rows - i, cut.chunk() - (skipped + i) % cut.chunk());
      f(i, row(i), count);
      i += count;
    }
  }

  /// Calls f(block) for blocks that have all elements of a tensor of `rows` rows, in their order. One block if one axis cuts the
  /// tensor; if several cut images [samples, channels, ...], a block for each image of two dims.
  template <class F>
  void for_each_block(std::size_t rows, F&& f) const {
    std::size_t row_size = 1;
    for (std::size_t dim = 0; dim <= cuts; ++dim) row_size *= dims[dim].extent;
    for_each_run(rows, [&](std::size_t first, std::size_t row, std::size_t count) {
      const std::size_t uncut = dims[0].extent;
      if (cuts == 0) return f(ElementBlock{first * uncut, count, uncut, row, 0, uncut});
      auto outer = dims;
      outer[0] = {count * uncut, row * uncut, 0};
      const DimPiece lines = outer[cuts - 1], line = outer[cuts];
      std::size_t blocks = 1;
      for (std::size_t dim = 0; dim + 1 < cuts; ++dim) blocks *= outer[dim].extent;
      for (std::size_t block = 0; block < blocks; ++block) {
        std::size_t place = 0, rest = block, inside = blocks;
        for (std::size_t dim = 0; dim + 1 < cuts; ++dim) {
          inside /= outer[dim].extent;
          place = place * outer[dim].whole + outer[dim].first + rest / inside;
          rest %= inside;
        }
        f(ElementBlock{first * row_size + block * lines.extent * line.extent, lines.extent, line.extent,
                       place * lines.whole + lines.first, line.first, line.whole});
      }
    });
  }
};

/// Rows of each token (or sample) of the micro-batch in a tensor with `rows` rows on this data rank: 1 for tokens; more where a
/// model makes several rows of a sample, such as the patches of an image. A batch of fields has samples of one row.
inline std::size_t rows_of_sample(const Environment& env, std::size_t rows) {
  return env.length == 1 && env.rows != 0 && rows != 0 && rows % env.rows == 0 ? rows / env.rows : 1;
}

// Not templates of the tensor, so that the messages are compiled once.
WEFT_COLD inline void require_token_rows(const Environment& env, const Shape& shape, std::size_t cp_ranks, std::size_t tp_ranks) {
  const std::size_t rows = shape.rank() == 0 ? 0 : shape[0] * cp_ranks * tp_ranks;
  if (env.rows == 0 || (shape.rank() != 0 && rows == env.rows * rows_of_sample(env, rows))) return;
  throw_error<ShapeError>({"masks and positions go by tokens, dim 0: ", shape.text(), " has not the rows of this micro-batch, ",
                           env.rows, " / (cp(", cp_ranks, ") * tp(", tp_ranks, ")); take a view whose dim 0 is the tokens"});
}
WEFT_COLD inline void require_known_columns(const Shape& shape) {
  for (std::size_t dim = 1; dim < shape.rank(); ++dim)
    if (shape.sharding(dim) != DimSharding::even)
      throw_error<LayoutError>({"a mask of ", shape.text(), ": dim ", dim, " is ",
                                shape.sharding(dim) == DimSharding::padded     ? "padded"
                                : shape.sharding(dim) == DimSharding::segments ? "cut by segments"
                                                                               : "held alike by several ranks",
                                ", so the mask would not be that of one rank; draw it where the dim is cut evenly (after "
                                "attention, or before the Column layer)"});
}
WEFT_COLD inline void require_cut_dim(const Shape& shape, std::size_t dim, std::string_view axis) {
  if (dim >= shape.rank())
    throw_error<ShapeError>({"a mask of ", shape.text(), ": ", axis, " cuts dim ", dim, ", which it lacks"});
}

// Rows that cp cuts are zig-zag chunks; after a gather they are in the order of ranks, not of tokens.
template <class X, class Context>
void require_rows_in_order(const Context& context) {
  if constexpr (Context::has(cp{}) && shard_dim<placement_t<X, cp>> != 0)
    if (context.size(cp{}) > 1)
      throw_error<LayoutError>(
          {"rows gathered over cp(", context.size(cp{}),
           ") are not in the order of tokens: each rank has two chunks of every sequence, and they follow each other by ranks. "
           "Ask positions_of(context, x) before they are gathered, or use attention, which exchanges the rows that it needs"});
}

template <class X>
struct GlobalIndexOf;
template <class T, class E, class... P>
struct GlobalIndexOf<Tensor<T, E, P...>> {
  static_assert(((shard_dim<P> != 0 || is_data_axis<typename P::axis> || std::is_same_v<typename P::axis, cp> ||
                  std::is_same_v<typename P::axis, tp>)&&...),
                "weft: masks and positions go by tokens, but the rows of this tensor are cut over an axis that does not cut "
                "tokens (experts, parts of a graph): draw the mask on the dense mesh, or before merge_samples(x)");
  template <class Context>
  static GlobalIndex find(const Context& context, const Tensor<T, E, P...>& x) {
    const std::size_t rows = x.shape().rank() == 0 ? 1 : x.shape()[0];
    GlobalIndex place;
    place.first_row = context.env.first_row;
    require_rows_in_order<Tensor<T, E, P...>>(context);
    std::size_t cp_ranks = 1, tp_ranks = 1;
    [[maybe_unused]] const auto add = [&]<class Q>(std::type_identity<Q>) {
      using A = typename Q::axis;
      // On a data axis a rank has sequences of its own, which the environment counts; cp cuts each sequence, and tp cuts the rows
      // that remain.
      if constexpr (shard_dim<Q> == 0 && std::is_same_v<A, cp>) {
        place.cut = {detail::sequence_length(context.env), context.size(A{}), context.rank(A{})};
        cp_ranks = context.size(A{});
      } else if constexpr (shard_dim<Q> == 0 && !is_data_axis<A>) {
        place.skipped += context.rank(A{}) * rows;
        tp_ranks = context.size(A{});
      }
    };
    (add(std::type_identity<P>{}), ...);
    require_token_rows(context.env, x.shape(), cp_ranks, tp_ranks);
    place.rows_of_all = rows * cp_ranks * tp_ranks;
    const std::size_t each = rows_of_sample(context.env, place.rows_of_all);
    place.first_row *= each;
    place.cut.length *= each;
    if (place.cut.ranks == 1) place.first_row += std::exchange(place.skipped, 0);
    return place;
  }
};

/// This rank's piece of a dim that the axis cuts. Collective on a domain axis, whose pieces may have different extents.
template <class A, class Context>
DimPiece piece_along(const Context& context, A axis, std::size_t extent) {
  if constexpr (!is_domain_axis<A>) return {extent, context.rank(axis) * extent, context.size(axis) * extent};
  if (context.size(axis) == 1) return {extent, 0, extent};
  const std::vector<std::size_t> extents = gather_numbers(context.comm(axis), extent);
  const auto begin = extents.begin(), before = begin + std::ptrdiff_t(context.rank(axis));
  return {extent, std::accumulate(begin, before, std::size_t(0)), std::accumulate(begin, extents.end(), std::size_t(0))};
}
template <class X>
struct PiecesOf;
template <class T, class E, class... P>
struct PiecesOf<Tensor<T, E, P...>> {
  /// Whether axes other than domain axes cut no dim after dim 1, and no dim after dim 0 is cut by two axes.
  static constexpr bool known = [] {
    constexpr int dims[] = {-1, shard_dim<P>...};
    for (const int& dim : dims)
      if (dim > 0 && std::count(std::begin(dims), &dim, dim) != 0) return false;
    return ((shard_dim<P> < 2 || is_domain_axis<typename P::axis>)&&...);
  }();
  static_assert(known,
                "weft: a mask needs the place of each element in the whole: one axis may cut the columns, along dim 1, domain "
                "axes the dims of images, and no dim is cut by two axes");
  /// Sets the dims of `place`. Collective on the domain axes that cut x.
  template <class Context>
  static void find(const Context& context, const Tensor<T, E, P...>& x, GlobalIndex& place) {
    const Shape& shape = x.shape();
    std::array<DimPiece, Shape::max_rank> pieces;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) pieces[dim] = {shape[dim], 0, shape[dim]};
    [[maybe_unused]] const auto cut = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (shard_dim < Q >> 0) {
        require_cut_dim(shape, shard_dim<Q>, Q::axis::name);
        pieces[shard_dim<Q>] = piece_along(context, typename Q::axis(), shape[shard_dim<Q>]);
      }
    };
    (cut(std::type_identity<P>{}), ...);
    for (std::size_t dim = 1; dim < shape.rank(); ++dim) {
      if (const DimPiece& piece = pieces[dim]; piece.extent != piece.whole) {
        place.dims[++place.cuts] = piece;
      } else {
        DimPiece& before = place.dims[place.cuts];
        before = {before.extent * piece.extent, before.first * piece.extent, before.whole * piece.extent};
      }
    }
  }
};

/// The index of x in the global batch, as a matrix of its dim 0, the tokens or samples, times all other dims: [tokens, heads *
/// width] and [tokens, heads, width] are one matrix. Domain axes may cut dims after dim 0, in pieces of any extents; the call is
/// collective on them. Throws ShapeError if dim 0 is not the tokens of the context's micro-batch (Environment::rows), LayoutError
/// if the columns are cut by segments, held alike by several ranks or padded (DimSharding) and so have no global index.
template <class Context, AnyTensor X>
GlobalIndex global_index_of(const Context& context, const X& x) {
  require_known_columns(x.shape());
  GlobalIndex place = GlobalIndexOf<X>::find(context, x);
  PiecesOf<X>::find(context, x, place);
  return place;
}

/// Tokens of a whole sequence (of a sample of fields: its rows), for x whose rows are those of the micro-batch or this rank's
/// part of them.
template <class Context, AnyTensor X>
std::size_t whole_sequence_length(const Context& context, const X& x) {
  std::size_t rows = x.shape().rank() == 0 ? 0 : x.shape()[0];
  if (shard_dim<placement_t<X, cp>> == 0) rows *= context.size(cp{});
  if (shard_dim<placement_t<X, tp>> == 0) rows *= context.size(tp{});
  return detail::sequence_length(context.env) * rows_of_sample(context.env, rows);
}

template <class X>
inline constexpr bool whole_sequences = false;
template <class T, class E, class... P>
inline constexpr bool whole_sequences<Tensor<T, E, P...>> = (!cuts_sequences<P> && ...);

}  // namespace detail

/// The number of global columns of x, of which x.columns() are on this rank. Throws LayoutError if an axis cuts them unevenly
/// (heads held alike, padding).
template <class Context, class T, class E, class... P>
std::size_t whole_columns(const Context& context, const Tensor<T, E, P...>& x) {
  std::size_t columns = x.columns();
  [[maybe_unused]] const auto times = [&]<class Q>(std::type_identity<Q>) {
    if constexpr (shard_dim < Q >> 0) {
      if (shard_dim<Q> + 1 != int(x.shape().rank())) return;  // heads
      detail::require_parts_of_whole(Q::axis::name, x.shape(), shard_dim<Q>, context.size(typename Q::axis{}));
      columns *= context.size(typename Q::axis{});
    }
  };
  (times(std::type_identity<P>{}), ...);
  return columns;
}

/// Tokens of a sequence (of a sample of fields: its rows in x, such as patches), for x whose rows are whole sequences, one after
/// the other: row i is token i % length of sequence i / length. Does not compile if cp or sequence parallelism cuts x's rows: see
/// positions_of. Throws LayoutError for rows gathered over cp, whose ranks have zig-zag chunks of each sequence, one rank's after
/// another's.
template <class Context, AnyTensor X>
std::size_t sequence_length(const Context& context, const X& x) {
  static_assert(detail::whole_sequences<X>,
                "weft: rows of a sequence are cut over cp or tp in this tensor, so row i is not token i of it: take "
                "positions_of(context, x), or under sequence parallelism bring x to Invariant<tp> first");
  detail::require_rows_in_order<X>(context);
  return detail::sequence_length(context.env) * detail::rows_of_sample(context.env, x.shape().rank() == 0 ? 0 : x.shape()[0]);
}

/// The position in its document of each local row (dim 0), [rows]; without Batch::documents a sequence is one document. The rows
/// of a micro-batch are sequences of Environment::length tokens, one after the other, or this rank's part of each (Zigzag). While
/// a model decodes, a row's position counts the tokens that the cache has of its sequence.
template <class Context, AnyTensor X>
Tensor<std::int32_t, typename X::execution_space> positions_of(const Context& context, const X& x) {
  Tensor<std::int32_t, typename X::execution_space> positions(x.device(), {x.shape()[0]});
  const detail::GlobalIndex place = detail::GlobalIndexOf<X>::find(context, x);
  const std::size_t each = context.env.rows == 0 ? 1 : detail::rows_of_sample(context.env, place.rows_of_all),
                    length = detail::sequence_length(context.env) * each,
                    first = context.env.first_row * each;  // a micro-batch begins with a sequence
  std::int32_t* out = positions.data();
  const std::int32_t* const documents = context.env.documents.get();
  const std::int32_t* const cached = context.env.cached == nullptr ? nullptr : context.env.cached->positions;
  detail::for_each_index(
      x.device(), {"positions", x.shape()[0] * sizeof(std::int32_t)}, x.shape()[0], KOKKOS_LAMBDA(const std::size_t row) {
        const std::size_t token = place.row(row) - first, position = token % length;
        if (cached != nullptr) {
          out[row] = cached[token];
          return;
        }
        const std::size_t begin = documents ? kernels::document_begin(documents + (token - position), position) : 0;
        out[row] = static_cast<std::int32_t>(position - begin);
      });
  return positions;
}

/// The document of each local row (dim 0), [rows], as Batch::documents numbers them; 0 without any.
template <class Context, AnyTensor X>
Tensor<std::int32_t, typename X::execution_space> documents_of(const Context& context, const X& x) {
  Tensor<std::int32_t, typename X::execution_space> numbers(x.device(), {x.shape()[0]});
  const detail::GlobalIndex place = detail::GlobalIndexOf<X>::find(context, x);
  const std::size_t first = context.env.first_row;
  std::int32_t* out = numbers.data();
  const std::int32_t* const documents = context.env.documents.get();
  detail::for_each_index(
      x.device(), {"positions", x.shape()[0] * sizeof(std::int32_t)}, x.shape()[0],
      KOKKOS_LAMBDA(const std::size_t row) { out[row] = documents ? documents[place.row(row) - first] : 0; });
  return numbers;
}

}  // namespace weft
