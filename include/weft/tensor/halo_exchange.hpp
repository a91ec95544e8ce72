// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages of a halo exchange: strips of rows that travel between neighbours along a dim that an axis cuts, and terms of such
// strips on the way home. A halo may be wider than a neighbour's piece. The neighbour then passes on rows of the rank behind it,
// and their terms on the way home. Each message has as many rows whether pieces are wide or narrow, so no rank needs the extents
// of the others, and ranks with wide pieces wait for nothing else.
//
//   HaloExchange<Strip> exchange(comm, HaloWay::to_halos, dim, own, rows, {first_rows, last_rows});
//   ...                                                       // other work
//   const Strips<Strip>& halo = exchange.wait();              // rows before and after the piece
//
// Example, a halo of 3 rows before each piece: ranks with 4 rows send their last 3. If three ranks have 3, 1 and 4 rows, the
// second one waits for rows 0 to 2, and sends rows 1 to 3.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/scalar.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The rows of a halo on both sides of a piece.
struct Reach {
  std::size_t before = 0, after = 0;
};

/// The rows of padding beyond a closed border. They fill halos that are wider than all pieces between them and the border.
struct RowsBeyond {
  std::size_t before = 0, after = 0;
  double value = 0;
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
  /// rows after its piece. If all pieces are narrower than the halo, each rank waits for the one before it. So wide halos go in
  /// messages of at most `part` rows. A piece has at least as many, so the rows of a message wait for those of earlier ones only.
  static HaloRows of_ring(const Communicator& comm, Reach reach, std::size_t at_end) {
    HaloRows rows(comm, reach);
    rows.before = rows.to_next = reach.before;
    rows.after = rows.last ? at_end : reach.after;
    rows.to_previous = rows.first ? at_end : reach.after;
    rows.first = rows.last = false;
    const std::size_t ranks = std::size_t(comm.size());
    rows.part = std::max<std::size_t>(2, (std::max({reach.before, reach.after, at_end}) + ranks - 1) / ranks);
    return rows;
  }
  bool first, last;                  ///< whether a border of the domain is before or after the piece
  std::size_t before, after;         ///< of the neighbours, around the piece
  std::size_t to_previous, to_next;  ///< the first and the last rows of the piece, which neighbours have
  std::size_t part = 0;              ///< the most rows of a message; 0: all of them
  RowsBeyond beyond = {};            ///< on the first and the last rank
  std::size_t around(std::size_t own) const { return before + own + after; }
  /// Whether this rank has no rows of neighbours, and they have none of it.
  bool none() const { return before + after + to_previous + to_next == 0; }
};

/// Tags of the two directions, beside those of a program's messages.
inline constexpr int to_previous_tag = 0x4a10, to_next_tag = 0x4a11;

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

/// The rows of neighbours come into halos, or terms of halos go home.
enum class HaloWay { to_halos, home };

/// Strips that travel to both neighbours while those of the neighbours arrive.
template <class Strip>
class HaloExchange {
 public:
  /// Sends `ours`, the rows that both neighbours ask for, or on the way home the terms of both halos. Rows that the piece lacks,
  /// since it has only `own` along `dim`, are replaced when they arrive. On the way home they are added to the terms of the halo.
  HaloExchange(const Communicator& comm, HaloWay way, std::size_t dim, std::size_t own, const HaloRows& rows, Strips<Strip> ours)
      : comm_(comm), dim_(dim), own_(own), part_(rows.part), home_(way == HaloWay::home), ours_(std::move(ours)) {
    const int ranks = comm.size();
    if (ranks == 1) {  // of a ring; a closed border has no strips
      theirs_ = {ours_.after, ours_.before};
      return;
    }
    theirs_ = {rows_like(ours_.before, home_ ? rows.to_previous : rows.before),
               rows_like(ours_.after, home_ ? rows.to_next : rows.after)};
    const int previous = (comm.rank() + ranks - 1) % ranks, next = (comm.rank() + 1) % ranks;
    lanes_.push_back({theirs_.before, ours_.after, previous, next, to_next_tag, !home_});
    lanes_.push_back({theirs_.after, ours_.before, next, previous, to_previous_tag, home_});
    for (Lane& lane : lanes_) receive(lane);
    for (Lane& lane : lanes_) send(lane, home_ ? rows_in(lane.in) : 0);
  }
  /// The neighbours' strips, once they are here and the rank's own strips have left.
  const Strips<Strip>& wait() {
    std::size_t parts = 0;
    for (const Lane& lane : lanes_) parts = std::max(parts, lane.arriving.size());
    for (std::size_t step = 0; step < parts; ++step)
      for (Lane& lane : lanes_) arrive(lane, home_ ? parts - 1 - step : step);
    for (Request& request : leaving_) request.wait();
    return theirs_;
  }

 private:
  /// Rows on one side of the piece, counted from it: those from `first` on, up to `end`.
  struct Rows {
    std::size_t first, end;
  };
  /// The strips that come from one neighbour, and those that go on to the other one.
  struct Lane {
    Strip in, out;
    int from, to, tag;
    bool backward;  ///< whether the row next to the piece is the last one of a strip
    std::vector<Strip> parts = {};
    std::vector<Request> arriving = {};  // they end before the strips do
    std::size_t sent = 0;

    std::size_t row(std::size_t rows, Rows of) const { return backward ? rows - of.end : of.first; }
  };

  Strip rows_like(const Strip& x, std::size_t rows) const { return Strip(x.device(), with_extent(x.shape(), dim_, rows)); }
  std::size_t rows_in(const Strip& x) const { return x.shape()[dim_]; }
  // Strips go in parts: to halos those next to the piece first, and on the way home last.
  std::size_t parts_of(const Strip& x) const {
    const std::size_t rows = rows_in(x);
    return part_ == 0 ? rows != 0 : (rows + part_ - 1) / part_;
  }
  Rows part(const Strip& x, std::size_t number) const {
    const std::size_t rows = rows_in(x);
    return part_ == 0 ? Rows{0, rows} : Rows{number * part_, std::min((number + 1) * part_, rows)};
  }

  void receive(Lane& lane) {
    const std::size_t parts = parts_of(lane.in);
    for (std::size_t i = 0; i < parts; ++i) {
      const Rows rows = part(lane.in, i);
      lane.parts.push_back(parts == 1 ? lane.in : rows_like(lane.in, rows.end - rows.first));
    }
    lane.arriving.resize(parts);
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t number = home_ ? parts - 1 - i : i;
      lane.arriving[number] = comm_.recv_async(lane.parts[number], lane.from, lane.tag);
    }
  }
  void arrive(Lane& lane, std::size_t number) {
    if (number >= lane.arriving.size()) return;
    const Rows rows = part(lane.in, number);
    lane.arriving[number].wait();
    if (lane.parts.size() > 1)
      move_rows<false>(lane.parts[number], dim_, 0, lane.in, lane.row(rows_in(lane.in), rows), rows.end - rows.first);
    pass_on(lane, rows);
    send(lane, home_ ? rows.first : rows.end);
  }
  // The row behind the piece at one end is `own` rows away from the other end.
  void pass_on(const Lane& lane, Rows rows) const {
    const std::size_t in = rows_in(lane.in), out = rows_in(lane.out);
    if (home_) {
      rows = {std::max(rows.first, own_), std::min(rows.end, own_ + out)};
      if (rows.first >= rows.end) return;
      const Rows to{rows.first - own_, rows.end - own_};
      move_rows<true>(lane.in, dim_, lane.row(in, rows), lane.out, lane.row(out, to), rows.end - rows.first);
    } else {
      rows.end = std::min(rows.end, out - std::min(own_, out));
      if (rows.first >= rows.end) return;
      const Rows to{rows.first + own_, rows.end + own_};
      move_rows<false>(lane.in, dim_, lane.row(in, rows), lane.out, lane.row(out, to), rows.end - rows.first);
    }
  }
  // Sends all parts that wait for no further rows. Those that have arrived are the first `known`, on the way home all from
  // `known`.
  void send(Lane& lane, std::size_t known) {
    const std::size_t in = rows_in(lane.in), out = rows_in(lane.out), parts = parts_of(lane.out);
    for (; lane.sent < parts; ++lane.sent) {
      const Rows rows = part(lane.out, home_ ? parts - 1 - lane.sent : lane.sent);
      const bool ready =
          home_ ? known <= std::min(rows.first + own_, in) : std::min(rows.end - std::min(own_, rows.end), in) <= known;
      if (!ready) return;
      const Strip strip = parts == 1 ? lane.out : rows_of(lane.out, dim_, lane.row(out, rows), rows.end - rows.first);
      sent_.push_back(strip);
      leaving_.push_back(comm_.send_async(strip, lane.to, lane.tag));
    }
  }

  const Communicator& comm_;
  const std::size_t dim_, own_, part_;
  const bool home_;
  Strips<Strip> ours_, theirs_;
  std::vector<Lane> lanes_;
  std::vector<Strip> sent_;
  std::vector<Request> leaving_;  // they end before the strips do
};

}  // namespace weft::detail
