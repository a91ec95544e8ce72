// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange of rows between neighbours along a dim that an axis cuts. A piece with halos is a tensor of more rows. Pieces may
// have different extents, also fewer rows than a halo. Along two axes one exchange follows the other, and the second brings the
// corners.
//
//   const HaloRows rows(comm, {.before = 1, .after = 1});                 // 0 at the border of the domain
//   const HaloCall call{"conv2d", "dx"};                                  // for messages
//   const auto wide = bring_halo<Wide>(comm, call, x, 2, rows);           // x's rows with those of both neighbours
//   const auto sums = send_halo_home<Piece>(comm, call, g, 2, rows);      // its dual: neighbours' rows are sent home and added

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/halo_exchange.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The caller of an exchange, for messages: an operation, or null for to<Halo>, and the axis.
struct HaloCall {
  const char* operation;
  std::string_view axis;
};

/// Throws ShapeError for a piece without rows, and for one with fewer rows than a neighbour asks for that cannot pass on rows of
/// other ranks: at a closed border without padding, or in a ring around which the halo would go more than once.
void require_halo_rows(const HaloCall& call, const Shape& shape, std::size_t dim, std::size_t own, const HaloRows& rows);

/// x with room for rows on both sides.
template <class Y, class X>
Y with_room(const X& x, std::size_t dim, std::size_t before, std::size_t after) {
  const std::size_t own = x.shape()[dim];
  const Y y(x.device(), with_extent(x.shape(), dim, before + own + after));
  move_rows<false>(x, dim, 0, y, before, own);
  return y;
}
/// The first and the last rows of y = strips, or with `add`, they are added. Rows of a strip that y lacks are left out.
template <bool add, class Y>
void put_strips(const Y& y, std::size_t dim, const Strips<strip_t<Y>>& strips) {
  const std::size_t own = y.shape()[dim], all = strips.after.shape()[dim];
  const std::size_t first = std::min(strips.before.shape()[dim], own), last = std::min(all, own);
  move_rows<add>(strips.before, dim, 0, y, 0, first);
  move_rows<add>(strips.after, dim, all - last, y, own - last, last);
}
/// The rows of a strip beside an edge of the piece, with room for all that a neighbour asks for. `value` is in place of the
/// others.
template <class Strip>
Strip with_all_rows(const Strip& strip, std::size_t dim, bool at_end, std::size_t rows, double value) {
  const std::size_t own = strip.shape()[dim];
  if (own >= rows) return strip;
  using T = typename Strip::value_type;
  const Strip all(strip.device(), with_extent(strip.shape(), dim, rows));
  T* const data = all.data();
  for_each_index(
      all.device(), {"fill", all.size() * sizeof(T)}, all.size(),
      KOKKOS_LAMBDA(const std::size_t i) { data[i] = T(accumulate_t<T>(value)); });
  move_rows<false>(strip, dim, 0, all, at_end ? rows - own : 0, own);
  return all;
}
/// The rows of x that the neighbours ask for.
template <class X>
Strips<strip_t<X>> asked_rows(const X& x, std::size_t dim, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim], first = std::min(rows.to_previous, own), last = std::min(rows.to_next, own);
  return {with_all_rows(rows_of(x, dim, 0, first), dim, false, rows.to_previous, rows.beyond.value),
          with_all_rows(rows_of(x, dim, own - last, last), dim, true, rows.to_next, rows.beyond.value)};
}

/// x and its neighbours' rows around it.
template <class Y, class X>
Y bring_halo(const Communicator& comm, const HaloCall& call, const X& x, std::size_t dim, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim];
  require_halo_rows(call, x.shape(), dim, own, rows);
  HaloExchange<strip_t<X>> exchange(comm, HaloWay::to_halos, dim, own, rows, asked_rows(x, dim, rows));
  const Y y = with_room<Y>(x, dim, rows.before, rows.after);
  put_strips<false>(y, dim, exchange.wait());
  return y;
}

/// The piece's own rows of x, plus the rows that the neighbours have for it.
template <class Y, class X>
Y send_halo_home(const Communicator& comm, const HaloCall& call, const X& x, std::size_t dim, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim] - rows.before - rows.after;
  require_halo_rows(call, x.shape(), dim, own, rows);
  HaloExchange<strip_t<X>> exchange(comm, HaloWay::home, dim, own, rows,
                                    {rows_of(x, dim, 0, rows.before), rows_of(x, dim, rows.before + own, rows.after)});
  const Y y(x.device(), with_extent(x.shape(), dim, own));
  move_rows<false>(x, dim, rows.before, y, 0, own);
  put_strips<true>(y, dim, exchange.wait());
  return y;
}

/// The rows of x that remain with a narrower halo.
template <class Y, class X>
Y narrow_halo(const X& x, std::size_t dim, const HaloRows& had, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim] - had.before - had.after;
  const Y y(x.device(), with_extent(x.shape(), dim, rows.around(own)));
  move_rows<false>(x, dim, had.before - rows.before, y, 0, rows.around(own));
  return y;
}

/// x with zeros for further rows of the neighbours.
template <class Y, class X>
Y widen_terms(const X& x, std::size_t dim, const HaloRows& had, const HaloRows& rows) {
  const std::size_t held = x.shape()[dim], own = held - had.before - had.after;
  const Y y(x.device(), with_extent(x.shape(), dim, rows.around(own)));
  fill_zero(y.device(), y.data(), y.size());
  move_rows<false>(x, dim, 0, y, rows.before - had.before, held);
  return y;
}

template <class P>
HaloRows halo_rows(const Communicator& comm) {
  constexpr Reach reach{PieceOf<P>::before, PieceOf<P>::after};
  if constexpr (PieceOf<P>::border == Border::periodic) return HaloRows::of_ring(comm, reach, reach.after);
  else return HaloRows(comm, reach);
}

enum class HaloMove { arrives, goes_home, narrows, widens, by_way_of_shard };
template <class From, class To>
constexpr HaloMove halo_move() {
  constexpr Kind from = kind_of<From>, to = kind_of<To>;
  using F = PieceOf<From>;
  using T = PieceOf<To>;
  if (F::dim != T::dim || (overlaps<From> && overlaps<To> && F::border != T::border)) return HaloMove::by_way_of_shard;
  if (from == Kind::shard && to == Kind::halo) return HaloMove::arrives;
  if (from == Kind::halo_terms && to == Kind::shard) return HaloMove::goes_home;
  if (from == Kind::halo && to != Kind::halo_terms && F::before >= T::before && F::after >= T::after) return HaloMove::narrows;
  if (from != Kind::halo && to == Kind::halo_terms && F::before <= T::before && F::after <= T::after) return HaloMove::widens;
  return HaloMove::by_way_of_shard;
}
// The piece without halos between two such placements.
template <class From, class To>
using own_piece_t = Shard<typename To::axis, overlaps<From> ? PieceOf<From>::dim : PieceOf<To>::dim>;

template <class Y, class From, class To, class X>
Y move_halo(const Communicator& comm, const X& x) {
  constexpr std::size_t dim = PieceOf<To>::dim;
  const HaloRows had = halo_rows<From>(comm), rows = halo_rows<To>(comm);
  constexpr HaloMove move = halo_move<From, To>();
  if constexpr (move == HaloMove::arrives) return bring_halo<Y>(comm, {nullptr, To::axis::name}, x, dim, rows);
  else if constexpr (move == HaloMove::goes_home) return send_halo_home<Y>(comm, {nullptr, To::axis::name}, x, dim, had);
  else if constexpr (move == HaloMove::narrows) return narrow_halo<Y>(x, dim, had, rows);
  else return widen_terms<Y>(x, dim, had, rows);
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/tensor/halo_impl.hpp>
#endif
