// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rows and columns of the whole batch a tensor's local elements are: what positions and dropout masks are functions of,
// so that they do not depend on the layout.

#include <algorithm>
#include <cstddef>
#include <utility>

#include <weft/mesh/zigzag.hpp>
#include <weft/nn/context.hpp>
#include <weft/tensor/host_loop.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// The place of a local matrix in the global batch.
struct Place {
  std::size_t first_row = 0;     ///< token of the global batch; where cp cuts sequences, the micro-batch's first
  std::size_t first_column = 0;  ///< global column
  std::size_t columns = 0;       ///< of the whole row
  std::size_t skipped = 0;       ///< rows of this rank's part of the micro-batch before the matrix, where cp cuts
  Zigzag cut;

  /// The token of the global batch of local row i.
  KOKKOS_INLINE_FUNCTION std::size_t row(std::size_t i) const { return first_row + (cut.ranks == 1 ? i : cut.row(skipped + i)); }

  /// f(local row, token of the global batch, count) for each run of rows that follow each other in the batch, too.
  template <class F>
  void for_each_run(std::size_t rows, F&& f) const {
    if (cut.ranks == 1) return f(std::size_t(0), first_row, rows);
    for (std::size_t i = 0; i < rows;) {
      const std::size_t count = std::min(rows - i, cut.chunk() - (skipped + i) % cut.chunk());
      f(i, row(i), count);
      i += count;
    }
  }
};

namespace detail {
template <class X>
struct PlaceOf;
template <class T, class E, class... P>
struct PlaceOf<Tensor<T, E, P...>> {
  template <class Context>
  static Place find(const Context& context, const Tensor<T, E, P...>& x) {
    Place place{context.env.first_row, 0, x.columns(), 0, {}};
    [[maybe_unused]] const auto add = [&]<class Q>(std::type_identity<Q>) {
      using A = typename Q::axis;
      // Over dp a rank has sequences of its own, which the environment counts; cp cuts each sequence, and other axes cut the
      // rows of what is then here.
      if constexpr (shard_dim<Q> == 0 && std::is_same_v<A, cp>) place.cut = {detail::sequence_length(context.env), context.size(A{}), context.rank(A{})};
      else if constexpr (shard_dim<Q> == 0 && !std::is_same_v<A, dp>) place.skipped += context.rank(A{}) * x.rows();
      if constexpr (shard_dim<Q> == 1) {
        place.first_column += context.rank(A{}) * x.columns();
        place.columns *= context.size(A{});
      }
    };
    (add(std::type_identity<P>{}), ...);
    if (place.cut.ranks == 1) place.first_row += std::exchange(place.skipped, 0);
    return place;
  }
};
}  // namespace detail

template <class Context, AnyTensor X>
Place place_of(const Context& context, const X& x) {
  return detail::PlaceOf<X>::find(context, x);
}

namespace detail {
template <class X>
inline constexpr bool whole_sequences = false;
template <class T, class E, class... P>
inline constexpr bool whole_sequences<Tensor<T, E, P...>> = (!cuts_sequences<P> && ...);
}  // namespace detail

/// Tokens of a sequence where x's rows are whole sequences, one after the other: row i is token i % length of sequence i / length.
/// Does not compile where cp or sequence parallelism cuts x's rows: see positions_of.
template <class Context, AnyTensor X>
std::size_t sequence_length(const Context& context, const X&) {
  static_assert(detail::whole_sequences<X>,
                "weft: rows of a sequence are cut over cp or tp in this tensor, so row i is not token i of it: take positions_of(context, x), or bring x "
                "to Invariant on that axis first");
  return detail::sequence_length(context.env);
}

/// The position in its sequence of each of the local rows, [rows]. Rows of a micro-batch are sequences of Environment::length
/// tokens, one after the other, or this rank's part of each (Zigzag).
template <class Context, AnyTensor X>
Tensor<std::int32_t, typename X::execution_space> positions_of(const Context& context, const X& x) {
  Tensor<std::int32_t, typename X::execution_space> positions(x.device(), {x.rows()});
  const Place place = place_of(context, x);
  const std::size_t length = detail::sequence_length(context.env), first = context.env.first_row;  // a micro-batch begins with a sequence
  std::int32_t* out = positions.data();
  detail::for_each_index(x.device(), x.rows(), KOKKOS_LAMBDA(const std::size_t row) { out[row] = static_cast<std::int32_t>((place.row(row) - first) % length); });
  return positions;
}

}  // namespace weft
