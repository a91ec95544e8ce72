// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moves of a cut from one dim to another whose pieces have different extents. The ranks need the extents of all pieces, so these
// are arguments. Dims without them are cut evenly, as in to<Shard<dx, 1>>(x). No other message is sent than one all-to-all.
//
//   const auto rows = cut_pieces<Shard<dx, 2>>(x);      // x Shard<dx, 2>: the extents on all ranks
//   const auto channels = cut_pieces<Shard<dx, 1>>(x);  // those that the ranks get
//   const auto down = fft<2>(to<Shard<dx, 1>>(x, rows, channels));                          // [samples, channels / dx, rows, 2]
//   const auto back = to<Shard<dx, 2>>(ifft<2>(down), channels, rows);                      // pieces as x

#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/comm/gather_lists.hpp>
#include <weft/core/text.hpp>
#include <weft/operations/refused.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// The extents of the pieces of dim `Dim` on the ranks of a domain axis, by rank.
template <detail::Axis A, int Dim>
struct CutPieces {
  std::vector<std::size_t> extents;
};

namespace detail {

/// A dim that an axis cuts, and the extents of its pieces by rank.
struct DimPieces {
  std::size_t dim;
  std::vector<std::size_t> extents;
  std::size_t whole() const { return std::accumulate(extents.begin(), extents.end(), std::size_t(0)); }
};

/// `whole` elements in pieces that differ by one at most, the longer ones first. Throws ShapeError for fewer elements than ranks.
std::vector<std::size_t> balanced_pieces(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t ranks);
/// Throws ShapeError unless x, of rank `rank` of the axis, has its piece along `from`, and the whole along `to`.
void require_pieces(std::string_view axis, const Shape& x, std::size_t rank, std::size_t ranks, const DimPieces& from,
                    const DimPieces& to);

// x, cut along from.dim, is cut along to.dim instead: each rank sends a part of its piece to every other one.
template <class Y, class X>
Y move_pieces(const Communicator& comm, const X& x, const DimPieces& from, const DimPieces& to) {
  const std::size_t rank = std::size_t(comm.rank()), ranks = std::size_t(comm.size());
  const Y y(x.device(), with_extent(with_extent(x.shape(), to.dim, to.extents[rank]), from.dim, from.whole()));
  const Around before(x.shape(), to.dim), after(y.shape(), from.dim);
  std::vector<std::size_t> sent(ranks), received(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    sent[i] = before.outer * to.extents[i] * before.inner;
    received[i] = after.outer * from.extents[i] * after.inner;
  }
  const strip_t<X> parts(x.device(), x.shape()), arrived(x.device(), y.shape());
  for (std::size_t i = 0, first = 0; i < ranks; first += to.extents[i++]) {
    const std::size_t width = to.extents[i] * before.inner, at = first * before.inner;
    copy_rows(x.device(), before.outer, width, x.data() + at, before.extent * before.inner, parts.data() + before.outer * at,
              width);
  }
  comm.all_to_all_v(parts, sent, arrived, received);
  for (std::size_t i = 0, first = 0; i < ranks; first += from.extents[i++]) {
    const std::size_t width = from.extents[i] * after.inner, at = first * after.inner;
    copy_rows(x.device(), after.outer, width, arrived.data() + after.outer * at, width, y.data() + at,
              after.extent * after.inner);
  }
  return y;
}

/// x with To in place of Back, of pieces of these extents; the gradient moves back.
template <class To, class Back, class C, class X>
auto moved_cut(const Variable<C, X>& x, const DimPieces& from, const DimPieces& to) {
  const auto move = []<class P, class Q>(std::type_identity<P>, std::type_identity<Q>, const auto& context, const auto& value,
                                         const DimPieces& had, const DimPieces& has) {
    using V = std::remove_cvref_t<decltype(value)>;
    if constexpr (AnyTensor<V>) {
      const Communicator& comm = context.comm(typename P::axis());
      return comm.size() == 1 ? relabel<replace_t<V, P>>(value) : move_pieces<replace_t<V, P>>(comm, value, had, has);
    } else {
      return moved_cut<P, Q>(value, had, has);
    }
  };
  return record_any(x, move(std::type_identity<To>(), std::type_identity<Back>(), x.context(), x.value(), from, to),
                    weft::detail::from(x, [from, to, move](const auto& context, const auto& g) {
                      return move(std::type_identity<Back>(), std::type_identity<To>(), context, g, to, from);
                    }));
}

/// The dims of the pieces that a move of a cut takes: those that the axis cuts before and after it.
template <class From, class To, class... Pieces>
inline constexpr bool pieces_of_move = false;
template <class From, class To, class... A, int... Dim>
inline constexpr bool pieces_of_move<From, To, CutPieces<A, Dim>...> =
    kind_of<From> == Kind::shard&& kind_of<To> == Kind::shard&& PieceOf<From>::dim != PieceOf<To>::dim &&
    ((std::is_same_v<A, typename To::axis> && (Dim == PieceOf<From>::dim || Dim == PieceOf<To>::dim)) && ...);

}  // namespace detail

namespace operations {

/// The pieces of a dim over a domain axis, for moves of its cut: those of x if To is its placement, and otherwise x's dim in
/// pieces that differ by one at most, the longer ones first. Collective over the axis in the first case, of one number for each
/// rank. In a rehearsal all ranks have this rank's extent. Throws ShapeError for a dim with fewer elements than ranks.
template <Placement To, class C, class X>
auto cut_pieces(const Variable<C, X>& x) {
  using A = typename To::axis;
  using P = placement_t<detail::bottom_t<X>, A>;
  constexpr int dim = detail::PieceOf<To>::dim;
  static_assert(detail::kind_of<To> == detail::Kind::shard && detail::is_domain_axis<A> && dim > 0,
                "weft: cut_pieces<Shard<axis, dim>>(x): a dim behind the first, which a domain axis cuts (dx, dy, dz)");
  const Shape shape = x.shape();
  detail::require_dim("cut_pieces", detail::bottom_of(x), dim);
  CutPieces<A, dim> pieces{{shape[dim]}};
  if constexpr (C::has(A())) {
    const Communicator& comm = x.context().comm(A());
    const std::size_t ranks = std::size_t(comm.size());
    if (ranks == 1) return pieces;
    if constexpr (shard_dim<P> == dim) pieces.extents = detail::gather_numbers(comm, shape[dim]);
    else pieces.extents = detail::balanced_pieces(A::name, shape, dim, ranks);
  }
  return pieces;
}

}  // namespace operations

/// to<To>(x) of a cut that moves from one dim to another, both between dims behind the first, with the extents of all pieces of
/// one of these dims or of both; a dim without them is cut evenly. One all-to-all; the gradient moves back. Inside of grad(f, x),
/// too. Throws ShapeError for pieces that are not those of x. The identity where the axis is not in force.
template <Placement To, class C, class X, detail::Axis... A, int... Dim>
requires(sizeof...(A) > 0) auto to(const Variable<C, X>& x, const CutPieces<A, Dim>&... pieces) {
  using From = placement_t<detail::bottom_t<X>, typename To::axis>;
  constexpr bool fits = detail::pieces_of_move<From, To, CutPieces<A, Dim>...>;
  if constexpr (!C::has(typename To::axis())) {
    return x;
  } else if constexpr (!fits) {
    static_assert(fits,
                  "weft: to<Shard<axis, dim>>(x, pieces) moves a cut from one dim to another, with the pieces of these dims: "
                  "cut_pieces<Shard<axis, dim>>(x) of the dim that the axis cuts, and of the one that it cuts next");
    return detail::AlreadyRefused();
  } else {
    static_assert(detail::keeps_order<detail::bottom_t<X>, From, To>());
    constexpr std::string_view axis = To::axis::name;
    const Communicator& comm = x.context().comm(typename To::axis());
    const std::size_t ranks = std::size_t(comm.size());
    detail::DimPieces from{std::size_t(shard_dim<From>), {}}, next{std::size_t(shard_dim<To>), {}};
    (void(((Dim == shard_dim<From> ? from : next).extents = pieces.extents)), ...);
    const Shape shape = x.shape();
    if (from.extents.empty()) from.extents.assign(ranks, shape[from.dim]);
    if (next.extents.empty()) next.extents.assign(ranks, detail::piece_of(axis, shape, next.dim, ranks, true));
    detail::require_parts_of_whole(axis, shape, from.dim, ranks);
    detail::require_pieces(axis, shape, std::size_t(comm.rank()), ranks, from, next);
    return detail::moved_cut<To, From>(x, from, next);
  }
}
template <Placement To, detail::Axis A, int Dim, class... More>
detail::AlreadyRefused to(detail::AlreadyRefused refused, const CutPieces<A, Dim>&, const More&...) {
  return refused;
}

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/cut_pieces_impl.hpp>
#endif
