// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one function that moves tensors between placements: `to<Placement>(context, x)`. It chooses the collective. Its backward is
// `to` from the dual of the target to the dual of the source:
//
//   from          to            collective          backward
//   Partial       Invariant     all-reduce          nothing
//   Invariant     Replicated    nothing             all-reduce
//   Partial       Shard         reduce-scatter      all-gather
//   Shard         Replicated    all-gather          reduce-scatter
//   Shard         Invariant     all-gather          slice
//   whole         Shard         slice               all-gather
//   whole         Partial       keep on rank 0      broadcast in type only
//   Shard         Halo          neighbours' rows    HaloTerms to Shard: the rows go home and are added
//   Halo          Shard         rows are dropped    Shard to HaloTerms: zeros in the neighbours' rows
//   Halo          other Halo    as the two above    HaloTerms to other HaloTerms
//   Shard         Ghosts        rows of a graph     GhostTerms to Shard: the rows go home and are added (operations/graph.hpp)
//
// All other moves of a Halo or of HaloTerms go by way of Shard.
// It is the identity on an axis that the context does not bind, so a layer needs no `if`.

#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/tensor/around.hpp>
#include <weft/tensor/fixed_terms.hpp>
#include <weft/tensor/gather_in_pieces.hpp>
#include <weft/tensor/halo.hpp>
#include <weft/tensor/sum_in_pieces.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// `movable`: operations/cut_pieces.hpp moves such a cut in uneven pieces, too.
std::size_t piece_of(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t ranks, bool movable = false);

void require_parts_of_whole(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t ranks);

template <class Y, class X>
Y slice(std::string_view axis, const X& x, std::size_t dim, std::size_t ranks, std::size_t rank) {
  const std::size_t piece = piece_of(axis, x.shape(), dim, ranks);
  const Around around(x.shape(), dim);
  Y y(x.device(), with_extent(x.shape(), dim, piece));
  copy_rows(x.device(), around.outer, piece * around.inner, x.data() + rank * piece * around.inner, around.extent * around.inner,
            y.data(), piece * around.inner);
  return y;
}

// Converts between [rank][outer][piece], the order in which collectives store pieces along an inner dim, and
// [outer][rank][piece].
template <class Exec, class T>
void interleave(Device<Exec>& device, const Around& whole, std::size_t ranks, const T* from, T* to, bool ranks_outside) {
  const std::size_t piece = whole.extent / ranks * whole.inner;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (ranks_outside)
      copy_rows(device, whole.outer, piece, from + rank * piece, piece * ranks, to + rank * whole.outer * piece, piece);
    else copy_rows(device, whole.outer, piece, from + rank * whole.outer * piece, piece, to + rank * piece, piece * ranks);
  }
}

template <class Y, class X>
Y gather_dim(const auto& comm, const X& x, std::size_t dim) {
  const std::size_t ranks = comm.size();
  Y y(x.device(), with_extent(x.shape(), dim, x.shape()[dim] * ranks));
  const Around whole(y.shape(), dim);
  if (whole.outer == 1) {
    comm.all_gather(raw(x), raw(y));
  } else {
    Y pieces(x.device(), y.shape());
    comm.all_gather(raw(x), raw(pieces));
    interleave(x.device(), whole, ranks, pieces.data(), y.data(), false);
  }
  return y;
}

template <class Y, class X>
Y scatter_sum(std::string_view axis, const auto& comm, const X& x, std::size_t dim) {
  const std::size_t ranks = comm.size();
  Y y(x.device(), with_extent(x.shape(), dim, piece_of(axis, x.shape(), dim, ranks)));
  const Around whole(x.shape(), dim);
  if (whole.outer == 1) {
    if (x.pending() != nullptr && dim == 0) reduce_scatter_in_pieces(comm, raw(x), raw(y));
    else comm.reduce_scatter(raw(x), raw(y));
  } else {
    X pieces(x.device(), x.shape());
    interleave(x.device(), whole, ranks, x.data(), pieces.data(), true);
    comm.reduce_scatter(raw(pieces), raw(y));
  }
  return y;
}

// x, cut along `from`, is cut along `to` instead: each rank sends a part of its piece to every other one.
template <class Y, class A, class X>
Y move_cut(const auto& comm, const X& x, std::size_t from, std::size_t to) {
  constexpr std::string_view axis = A::name;
  const std::size_t ranks = comm.size(), piece = piece_of(axis, x.shape(), to, ranks, is_domain_axis<A> && from > 0 && to > 0);
  require_parts_of_whole(axis, x.shape(), from, ranks);
  const Y y(x.device(), with_extent(with_extent(x.shape(), to, piece), from, x.shape()[from] * ranks));
  const Around before(x.shape(), to), after(y.shape(), from);
  const bool sent_as_is = before.outer == 1, arrives_as_is = after.outer == 1;  // the parts lie one after the other
  const auto parts = sent_as_is ? raw(x) : strip_t<X>(x.device(), x.shape());
  const auto arrived = arrives_as_is ? raw(y) : strip_t<X>(x.device(), y.shape());
  if (!sent_as_is) interleave(x.device(), before, ranks, x.data(), parts.data(), true);
  comm.all_to_all(parts, arrived);
  if (!arrives_as_is) interleave(x.device(), after, ranks, arrived.data(), y.data(), false);
  return y;
}

// Whether an axis that X names behind A cuts `Dim`: it cuts the pieces of A. Domain: only domain axes.
template <class X, class A, int Dim, bool Domain = false>
inline constexpr bool cut_inside = false;
template <class T, class E, class... P, class A, int Dim, bool Domain>
inline constexpr bool cut_inside<Tensor<T, E, P...>, A, Dim, Domain> = [] {
  bool behind = false, cuts = false;
  ((cuts = cuts || (behind && PieceOf<P>::dim == Dim && (!Domain || is_domain_axis<typename P::axis>)),
    behind = behind || std::is_same_v<typename P::axis, A>),
   ...);
  return cuts;
}();
// Whether at most one axis cuts dim `Dim` of each sample.
template <class X, int Dim>
inline constexpr bool cut_once = true;
template <class T, class E, class... P, int Dim>
inline constexpr bool cut_once<Tensor<T, E, P...>, Dim> =
    (0 + ... + int(PieceOf<P>::dim == Dim && !std::is_same_v<typename P::axis, dp>)) <= 1;
// Refuses moves whose parts would not follow each other in the order of one rank: an axis that the mesh names later cuts the
// pieces of an earlier one.
template <class X, class From, class To>
constexpr bool keeps_order() {
  constexpr int from = PieceOf<From>::dim, to = PieceOf<To>::dim;
  constexpr bool moves = kind_of<From> == Kind::shard && kind_of<To> == Kind::shard, cuts = is_whole<From>, joins = is_whole<To>;
  using A = typename To::axis;
  static_assert(
      !moves || (is_domain_axis<A> && from > 0 && to > 0),
      "weft: to<Shard> from a Shard along another dim is an all-to-all, over a domain axis (dx, dy, dz) and between dims "
      "from 1 on; go through to<Invariant<axis>>");
  static_assert(
      !(moves && (cut_inside<X, A, from> || cut_inside<X, A, to>)) &&
          !(cuts && to > 0 && cut_inside<X, A, to, true>)&&!(joins && from > 0 && cut_inside<X, A, from, true>),
      "weft: to: an axis that the mesh names later cuts the same dim, so the elements would be in another order than on "
      "one rank: move the cut of the later axis away first, to<Shard<dy, 3>>(x) before to<Shard<dx, 2>>(x)");
  return true;
}

// Whether one of two placements on tp is Partial: a sum whose terms the device may have fixed.
template <class From, class To>
inline constexpr bool enters_or_leaves_sum = std::is_same_v<typename To::axis, tp> &&
                                             (kind_of<From> == Kind::partial) != (kind_of<To> == Kind::partial);

// Refuses sums over cp that are not made of fixed terms, also on one rank.
template <Axis A, class From, AnyTensor X>
void refuse_sum_over_chunks(const X& x) {
  if constexpr (std::is_same_v<A, cp> && kind_of<From> == Kind::partial)
    if (x.device().chunk_terms() != 0) refuse_loose_sum("a tensor " + x.shape().text(), cp::name);
}

// `to` on a device whose sums have fixed terms: each rank holds the whole of a Partial tensor.
template <class Y, class From, class To, class X>
Y to_with_fixed_terms(const Communicator& comm, const X& x) {
  constexpr Kind from = kind_of<From>, target = kind_of<To>;
  const std::size_t ranks = std::size_t(comm.size());
  if constexpr (from == Kind::partial) require_summed(x);
  Y y;
  if constexpr (target == Kind::shard)
    y = ranks == 1 ? relabel<Y>(x) : slice<Y>(tp::name, x, shard_dim<To>, ranks, std::size_t(comm.rank()));
  else if constexpr (from == Kind::shard) {
    require_parts_of_whole(tp::name, x.shape(), shard_dim<From>, ranks);
    y = ranks == 1 ? relabel<Y>(x) : gather_dim<Y>(comm, x, shard_dim<From>);
  } else y = relabel<Y>(x);
  y.mark_summed(target == Kind::partial);
  return y;
}

// Refuses moves that depend on the edges of a graph.
template <class From, class To>
constexpr bool moves_without_edges() {
  constexpr bool plain = kind_of<From> == Kind::absent || std::is_same_v<From, To> || !(irregular<From> || irregular<To>);
  static_assert(
      plain,
      "weft: the edges of a graph decide which nodes of other ranks a rank has: to<Ghosts<axis>>(x, graph) brings them, "
      "of x [nodes, ...] placed Shard<axis, 0>, with graph = graph_part<axis>(nodes, senders, receivers)");
  return plain;
}

}  // namespace detail

/// x with the placement `To` on To's axis. Shapes are this rank's; a sharded dim must be divisible by the degree (ShapeError). A
/// gathered dim must be divided evenly: throws LayoutError if a ParameterSharding divides it by segments, repeats or pads it. The
/// pieces of a Halo may have different extents, and fewer rows than the halo: rows of further ranks come then. Throws ShapeError
/// for a piece without rows, for a first or last piece with fewer rows than the halo at a closed border, and over a periodic
/// border for a piece with fewer than 2 rows or than the halo's divided by the ranks, if the halo has more. A Partial product
/// whose rows are pending is computed and summed in pieces (tensor/sum_in_pieces.hpp). With TensorOptions::piece_bytes the rows
/// that tp shards are gathered in pieces, which arrive while a product multiplies the rows that are there
/// (tensor/gather_in_pieces.hpp). Numerics: sums are in rank order, so every rank has the same bits. Under
/// NumericsOptions::reproducible_degree a Partial tensor is summed already.
template <Placement To, class Context, AnyTensor X>
auto to(const Context& context, const X& x) {
  using A = typename To::axis;
  using From = placement_t<X, A>;
  constexpr bool wraps = detail::PieceOf<From>::border == Border::periodic || detail::PieceOf<To>::border == Border::periodic;
  static_assert(Context::has(A{}) || !wraps,
                "weft: a Halo with a periodic border needs its axis in the mesh, with one rank as well: Mesh<dp, dx>; without "
                "the axis nothing would be brought");
  if constexpr (!Context::has(A{}) || std::is_same_v<From, To> || !detail::moves_without_edges<From, To>()) {
    return x;
  } else {
    static_assert(detail::kind_of<From> != detail::Kind::absent,
                  "weft: this tensor has no placement on an axis that is in force: it was made for another context");
    using Y = replace_t<X, To>;
    constexpr detail::Kind from = detail::kind_of<From>, target = detail::kind_of<To>;
    const auto& comm = context.comm(A{});
    const auto ranks = static_cast<std::size_t>(comm.size());
    constexpr bool overlaps = detail::overlaps<From> || detail::overlaps<To>;
    constexpr bool moves_cut = from == detail::Kind::shard && target == detail::Kind::shard;
    static_assert(detail::keeps_order<X, From, To>());
    if constexpr (detail::enters_or_leaves_sum<From, To>)
      if (x.device().sum_terms() != 0) return detail::to_with_fixed_terms<Y, From, To>(comm, x);
    detail::refuse_sum_over_chunks<A, From>(x);
    if constexpr (is_whole<From> && is_whole<To>) {
      return relabel<Y>(x);
    } else if (ranks == 1 && !wraps) {
      return relabel<Y>(x);
    } else if constexpr (overlaps) {
      static_assert(detail::cut_once<X, detail::PieceOf<std::conditional_t<detail::overlaps<From>, From, To>>::dim>,
                    "weft: another axis cuts the dim of this Halo, too, so its neighbours do not hold the rows beside the piece: "
                    "let one axis cut the dim");
      if constexpr (detail::halo_move<From, To>() != detail::HaloMove::by_way_of_shard)
        return detail::move_halo<Y, From, To>(comm, x);
      else return to<To>(context, to<detail::own_piece_t<From, To>>(context, x));
    } else if constexpr (moves_cut) {
      return detail::move_cut<Y, A>(comm, x, shard_dim<From>, shard_dim<To>);
    } else if constexpr (from == detail::Kind::partial && is_whole<To>) {
      Y y(x.device(), x.shape());
      if (x.pending() != nullptr) {
        detail::all_reduce_in_pieces(comm, raw(x), raw(y));
      } else {
        detail::copy_rows(x.device(), 1, x.size(), x.data(), x.size(), y.data(), x.size());
        comm.all_reduce(raw(y));
      }
      return y;
    } else if constexpr (is_whole<From> && target == detail::Kind::partial) {
      if (comm.rank() == 0) return relabel<Y>(x);
      Y y(x.device(), x.shape());
      detail::fill_zero(x.device(), y.data(), y.size());
      return y;
    } else if constexpr (from == detail::Kind::shard && target == detail::Kind::partial) {
      constexpr std::size_t dim = shard_dim<From>;
      detail::require_parts_of_whole(A::name, x.shape(), dim, ranks);
      Y y(x.device(), detail::with_extent(x.shape(), dim, x.shape()[dim] * ranks));
      detail::fill_zero(x.device(), y.data(), y.size());
      const detail::Around whole(y.shape(), dim);
      const std::size_t piece = x.shape()[dim] * whole.inner;
      detail::copy_rows(x.device(), whole.outer, piece, x.data(), piece, y.data() + comm.rank() * piece,
                        whole.extent * whole.inner);
      return y;
    } else if constexpr (from == detail::Kind::shard) {
      detail::require_parts_of_whole(A::name, x.shape(), shard_dim<From>, ranks);
      if constexpr (std::is_same_v<From, Shard<tp, 0>> && std::is_same_v<To, Replicated<tp>>)
        if (x.shape().rank() == 2)
          if (const std::size_t pieces =
                  detail::pieces_of_rows(context, x.rows() * ranks, x.columns() * sizeof(typename X::value_type));
              pieces > 1)
            return detail::gather_in_pieces<Y>(comm, x, pieces);
      return detail::gather_dim<Y>(comm, x, shard_dim<From>);
    } else if constexpr (from == detail::Kind::partial) {
      return detail::scatter_sum<Y>(A::name, comm, x, shard_dim<To>);
    } else {
      return detail::slice<Y>(A::name, x, shard_dim<To>, ranks, comm.rank());
    }
  }
}

/// `to` for a temporary tensor: it may overwrite x's elements if no other tensor shares them, which saves a copy before an
/// all-reduce.
template <Placement To, class Context, AnyTensor X>
auto to(const Context& context, X&& x) requires(!std::is_lvalue_reference_v<X>) {
  using A = typename To::axis;
  if constexpr (!Context::has(A{}) || std::is_same_v<placement_t<X, A>, To>) {
    return X(std::move(x));  // a copy would share the elements and prevent the next axis from working in place
  } else {
    if constexpr (detail::kind_of<placement_t<X, A>> == detail::Kind::partial && is_whole<To>) {
      const bool fixed_terms = std::is_same_v<A, tp>   ? x.device().sum_terms() != 0
                               : std::is_same_v<A, cp> ? x.device().chunk_terms() != 0
                                                       : false;
      if (x.pending() == nullptr && x.unique() && !fixed_terms) {
        context.comm(A{}).all_reduce(raw(x));
        return relabel<replace_t<X, To>>(x);
      }
    }
    return to<To>(context, static_cast<const X&>(x));
  }
}

namespace detail {
template <class Like>
struct Bring;
template <class T, class E>
struct Bring<Tensor<T, E>> {
  template <class Context, class X>
  static X apply(const Context&, X x) {
    return x;
  }
};
template <class T, class E, class Q, class... R>
struct Bring<Tensor<T, E, Q, R...>> {
  template <class Context, class X>
  static auto apply(const Context& context, X x) {
    return Bring<Tensor<T, E, R...>>::apply(context, to<Q>(context, std::move(x)));
  }
};
}  // namespace detail

/// x with Like's placement on every axis, in the order of Like's axes.
template <AnyTensor Like, class Context, AnyTensor X>
auto to_layout_of(const Context& context, X x) {
  return detail::Bring<Like>::apply(context, std::move(x));
}

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/tensor/to_impl.hpp>
#endif
