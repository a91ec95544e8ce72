// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange of rows between neighbours along a dim that an axis cuts. A piece with halos is a tensor of more rows. Pieces may
// have different extents. Along two axes one exchange follows the other, and the second brings the corners.
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
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The rows of a halo on both sides of a piece.
struct Reach {
  std::size_t before = 0, after = 0;
};

/// The rows that a rank has of its neighbours, and those that they have of it.
struct HaloRows {
  HaloRows(const Communicator& comm, Reach reach)
      : first(comm.rank() == 0),
        last(comm.rank() + 1 == comm.size()),
        before(first ? 0 : reach.before),
        after(last ? 0 : reach.after),
        to_previous(first ? 0 : reach.after),
        to_next(last ? 0 : reach.before) {}
  /// The rows of a ring, whose last rank is the neighbour of the first: a domain without a border. The last rank has `at_end`
  /// rows after its piece.
  static HaloRows of_ring(const Communicator& comm, Reach reach, std::size_t at_end) {
    HaloRows rows(comm, reach);
    rows.before = rows.to_next = reach.before;
    rows.after = rows.last ? at_end : reach.after;
    rows.to_previous = rows.first ? at_end : reach.after;
    rows.first = rows.last = false;
    return rows;
  }
  bool first, last;                  ///< whether a border of the domain is before or after the piece
  std::size_t before, after;         ///< of the neighbours, around the piece
  std::size_t to_previous, to_next;  ///< the first and the last rows of the piece, which neighbours have
  std::size_t around(std::size_t own) const { return before + own + after; }
  /// Whether this rank has no rows of neighbours, and they have none of it.
  bool none() const { return before + after + to_previous + to_next == 0; }
};

/// The caller of an exchange, for messages: an operation, or null for to<Halo>, and the axis.
struct HaloCall {
  const char* operation;
  std::string_view axis;
};

/// Tags of the two directions, beside those of a program's messages.
inline constexpr int to_previous_tag = 0x4a10, to_next_tag = 0x4a11;

/// Throws ShapeError for a piece with fewer rows than a neighbour asks for.
void require_halo_rows(const HaloCall& call, const Shape& shape, std::size_t dim, std::size_t own, const HaloRows& rows);

/// y's rows along dim from y_first on = x's rows from x_first on, or with `add`, their sum.
template <bool add, class X, class Y>
void move_rows(const X& x, std::size_t dim, std::size_t x_first, const Y& y, std::size_t y_first, std::size_t count) {
  if (count == 0) return;
  const Around from(x.shape(), dim), to(y.shape(), dim);
  const std::size_t in = from.extent * from.inner, out = to.extent * to.inner, width = count * to.inner;
  using T = typename X::value_type;
  const T* const source = x.data() + x_first * from.inner;
  T* const target = y.data() + y_first * to.inner;
  if constexpr (!add) return copy_rows(x.device(), from.outer, width, source, in, target, out);
  else
    for_each_entry(
        x.device(), {"copy", 3 * from.outer * width * sizeof(T)}, from.outer, width,
        KOKKOS_LAMBDA(const std::size_t row, const std::size_t i) {
          using A = accumulate_t<T>;
          target[row * out + i] = T(A(target[row * out + i]) + A(source[row * in + i]));
        });
}

/// A tensor without placements, of rows along one dim.
template <class X>
using strip_t = decltype(raw(std::declval<const X&>()));

/// `count` rows of x from `first` on, in memory of their own.
template <class X>
strip_t<X> rows_of(const X& x, std::size_t dim, std::size_t first, std::size_t count) {
  const strip_t<X> strip(x.device(), with_extent(x.shape(), dim, count));
  move_rows<false>(x, dim, first, strip, 0, count);
  return strip;
}

/// Strips of rows along a dim: those of both neighbours, or those that they have of this rank.
template <class Strip>
struct Strips {
  Strip before, after;
};

/// x with room for rows on both sides.
template <class Y, class X>
Y with_room(const X& x, std::size_t dim, std::size_t before, std::size_t after) {
  const std::size_t own = x.shape()[dim];
  const Y y(x.device(), with_extent(x.shape(), dim, before + own + after));
  move_rows<false>(x, dim, 0, y, before, own);
  return y;
}
/// The first and the last rows of y = strips, or with `add`, they are added.
template <bool add, class Y>
void put_strips(const Y& y, std::size_t dim, const Strips<strip_t<Y>>& strips) {
  const std::size_t first = strips.before.shape()[dim], last = strips.after.shape()[dim];
  move_rows<add>(strips.before, dim, 0, y, 0, first);
  move_rows<add>(strips.after, dim, 0, y, y.shape()[dim] - last, last);
}
/// Strips that travel to both neighbours while those of the neighbours arrive.
template <class Strip>
class HaloExchange {
 public:
  /// Sends `ours`, and receives strips with `before` and `after` rows along `dim`.
  HaloExchange(const Communicator& comm, std::size_t dim, Strips<Strip> ours, std::size_t before, std::size_t after)
      : ours_(std::move(ours)), theirs_{rows_like(ours_.before, dim, before), rows_like(ours_.after, dim, after)} {
    const int ranks = comm.size();
    if (ranks == 1) {  // of a ring; a closed border has no strips
      theirs_ = {ours_.after, ours_.before};
      return;
    }
    const int previous = (comm.rank() + ranks - 1) % ranks, next = (comm.rank() + 1) % ranks;
    if (before != 0) requests_.push_back(comm.recv_async(theirs_.before, previous, to_next_tag));
    if (after != 0) requests_.push_back(comm.recv_async(theirs_.after, next, to_previous_tag));
    if (ours_.before.shape()[dim] != 0) requests_.push_back(comm.send_async(ours_.before, previous, to_previous_tag));
    if (ours_.after.shape()[dim] != 0) requests_.push_back(comm.send_async(ours_.after, next, to_next_tag));
  }
  /// The neighbours' strips, once they are here and the rank's own strips have left.
  const Strips<Strip>& wait() {
    for (Request& request : requests_) request.wait();
    return theirs_;
  }

 private:
  static Strip rows_like(const Strip& x, std::size_t dim, std::size_t rows) {
    return Strip(x.device(), with_extent(x.shape(), dim, rows));
  }

  Strips<Strip> ours_, theirs_;
  std::vector<Request> requests_;  // they end before the strips do
};

/// x and its neighbours' rows around it.
template <class Y, class X>
Y bring_halo(const Communicator& comm, const HaloCall& call, const X& x, std::size_t dim, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim];
  require_halo_rows(call, x.shape(), dim, own, rows);
  HaloExchange<strip_t<X>> exchange(comm, dim,
                                    {rows_of(x, dim, 0, rows.to_previous), rows_of(x, dim, own - rows.to_next, rows.to_next)},
                                    rows.before, rows.after);
  const Y y = with_room<Y>(x, dim, rows.before, rows.after);
  put_strips<false>(y, dim, exchange.wait());
  return y;
}

/// The piece's own rows of x, plus the rows that the neighbours have for it.
template <class Y, class X>
Y send_halo_home(const Communicator& comm, const HaloCall& call, const X& x, std::size_t dim, const HaloRows& rows) {
  const std::size_t own = x.shape()[dim] - rows.before - rows.after;
  require_halo_rows(call, x.shape(), dim, own, rows);
  HaloExchange<strip_t<X>> exchange(comm, dim, {rows_of(x, dim, 0, rows.before), rows_of(x, dim, rows.before + own, rows.after)},
                                    rows.to_previous, rows.to_next);
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
