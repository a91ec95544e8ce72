// SPDX-License-Identifier: Apache-2.0
#pragma once
// Placements: the layout of a tensor on one axis of the mesh. They are part of a tensor's type, so that a forgotten collective,
// forward or backward, is a compile error and not a silently wrong gradient.
//
//   placement        each rank holds                                         its gradient is
//   Invariant<A>     the same value, used once                               Invariant<A>
//   Replicated<A>    the same value, used by every rank's own part of the    Partial<A>
//                    work
//   Shard<A, Dim>    its own piece along Dim                                 Shard<A, Dim>
//   Partial<A>       a term of the sum                                       Replicated<A>
//   Halo<A, Dim, B, F>       its piece, with B rows of the rank before it    HaloTerms<A, Dim, B, F>
//                            and F rows of the rank after it; with
//                            Border::periodic ranks are a ring
//   HaloTerms<A, Dim, B, F>  a term of a sum for each row of such a piece    Halo<A, Dim, B, F>
//   Ghosts<A>                its nodes of a graph, and copies of those at    GhostTerms<A>
//                            the other ends of its edges
//   GhostTerms<A>            a term of a sum for each of such nodes          Ghosts<A>

#include <type_traits>

#include <weft/mesh/axis.hpp>

namespace weft {

/// Placement: each rank of the axis holds the same tensor and uses it once. Its gradient is Invariant.
template <detail::Axis A>
struct Invariant {
  using axis = A;
};
/// Placement: each rank of the axis holds the same tensor and uses it in a part of the work. Its gradient is Partial.
template <detail::Axis A>
struct Replicated {
  using axis = A;
};
/// Placement: each rank of the axis holds its piece along dim `Dim`. Its gradient is Shard along the same dim.
template <detail::Axis A, int Dim>
struct Shard {
  using axis = A;
};
/// Placement: each rank of the axis holds a term of a sum, with the shape of the whole. Its gradient is Replicated.
template <detail::Axis A>
struct Partial {
  using axis = A;
};
/// The border of a domain along an axis that cuts it. `periodic`: the last rank is the previous rank of the first.
enum class Border { closed, periodic };

/// A piece along Dim as of Shard<A, Dim>, with copies of the Before rows in front of it and of the After rows behind it, which
/// are rows of the previous and the next rank, or of ranks behind them if these have fewer. At a closed border the first rank has
/// no rows before its piece, and the last one none after it: there is nothing, not zeros, so a function of each element is right
/// on a Halo. Operations refuse a Halo unless their row in operations/rules.hpp takes one.
template <detail::Axis A, int Dim, int Before, int After = Before, Border border = Border::closed>
struct Halo {
  static_assert(Dim >= 0 && Before >= 0 && After >= 0 && Before + After > 0,
                "weft: Halo<axis, dim, before, after> has at least one row of a neighbour; Shard<axis, dim> has none");
  using axis = A;
};
/// The terms of a sum for each row of a Halo: the contributions of this rank to its rows and to its neighbours'.
template <detail::Axis A, int Dim, int Before, int After = Before, Border border = Border::closed>
struct HaloTerms {
  using axis = A;
};
/// The irregular case of a Halo, for graphs: the rows of a rank's nodes, a piece along dim 0 as of Shard<A, 0>, and behind them
/// copies of the nodes of other ranks from which its edges come. The edges decide which these are, so it takes them to move
/// there: to<Ghosts<A>>(x, graph), operations/graph.hpp. index_select takes rows of it, and a function of each element is right
/// on it; other operations refuse it.
template <detail::Axis A>
struct Ghosts {
  using axis = A;
};
/// The terms of a sum for each row of Ghosts: the contributions of this rank to its nodes and to those of other ranks.
template <detail::Axis A>
struct GhostTerms {
  using axis = A;
};
/// The placement on an axis that the tensor's type does not mention; never written by users.
template <detail::Axis A>
struct Absent {
  using axis = A;
};

namespace detail {

enum class Kind { absent, invariant, replicated, shard, partial, halo, halo_terms, ghosts, ghost_terms };

template <class P>
inline constexpr Kind kind_of = Kind::absent;
template <class A>
inline constexpr Kind kind_of<Invariant<A>> = Kind::invariant;
template <class A>
inline constexpr Kind kind_of<Replicated<A>> = Kind::replicated;
template <class A, int Dim>
inline constexpr Kind kind_of<Shard<A, Dim>> = Kind::shard;
template <class A>
inline constexpr Kind kind_of<Partial<A>> = Kind::partial;
template <class A, int Dim, int Before, int After, Border B>
inline constexpr Kind kind_of<Halo<A, Dim, Before, After, B>> = Kind::halo;
template <class A, int Dim, int Before, int After, Border B>
inline constexpr Kind kind_of<HaloTerms<A, Dim, Before, After, B>> = Kind::halo_terms;
template <class A>
inline constexpr Kind kind_of<Ghosts<A>> = Kind::ghosts;
template <class A>
inline constexpr Kind kind_of<GhostTerms<A>> = Kind::ghost_terms;

/// True for Ghosts and GhostTerms, whose rows of other ranks the edges of a graph name.
template <class P>
inline constexpr bool irregular = kind_of<P> == Kind::ghosts || kind_of<P> == Kind::ghost_terms;
/// True for halos, ghosts and their gradients, whose rows several ranks hold.
template <class P>
inline constexpr bool overlaps = kind_of<P> == Kind::halo || kind_of<P> == Kind::halo_terms || irregular<P>;
/// True if each rank holds only terms of a sum, so that no nonlinear function takes it.
template <class P>
inline constexpr bool has_terms =
    kind_of<P> == Kind::partial || kind_of<P> == Kind::halo_terms || kind_of<P> == Kind::ghost_terms;

// Refuses a rule that looks for a cut and has no case for halos, so that operations refuse them by default.
template <class P>
constexpr int refused_halo() {
  static_assert(
      !overlaps<P>,
      "weft: this operation has no rule for a Halo or its gradient: it would count a neighbour's rows, or move them; drop "
      "them first, to<Shard<axis, dim>>(x), on tensors (context, x); convolutions and pooling have their window in the "
      "type, conv2d<Window{3, 1, 1}>(x, w)");
  return -1;
}
template <class P>
constexpr int refused_ghosts() {
  static_assert(!irregular<P>,
                "weft: this operation has no rule for Ghosts, a graph's nodes with those of other ranks, or for their gradient: "
                "it would count or move rows of other ranks; compute it of the rank's nodes, before to<Ghosts<axis>>(x, graph), "
                "or of its edges, index_select(x, graph.from)");
  return -1;
}

}  // namespace detail

/// True if every rank holds the whole value.
template <class P>
inline constexpr bool is_whole = detail::kind_of<P> == detail::Kind::invariant || detail::kind_of<P> == detail::Kind::replicated;

/// The dim that P shards; -1 if P shards none. Does not compile for halos, ghosts and their gradients: a rule that takes them
/// looks at detail::PieceOf first.
template <class P>
inline constexpr int shard_dim = -1;
template <class A, int Dim>
inline constexpr int shard_dim<Shard<A, Dim>> = Dim;
template <class A, int Dim, int Before, int After, Border B>
inline constexpr int shard_dim<Halo<A, Dim, Before, After, B>> = detail::refused_halo<Halo<A, Dim, Before, After, B>>();
template <class A, int Dim, int Before, int After, Border B>
inline constexpr int shard_dim<HaloTerms<A, Dim, Before, After, B>> = detail::refused_halo<HaloTerms<A, Dim, Before, After, B>>();
template <class A>
inline constexpr int shard_dim<Ghosts<A>> = detail::refused_ghosts<Ghosts<A>>();
template <class A>
inline constexpr int shard_dim<GhostTerms<A>> = detail::refused_ghosts<GhostTerms<A>>();

/// A placement of a tensor on one axis: one of the table above.
template <class P>
concept Placement = requires {
  typename P::axis;
}
&&detail::kind_of<P> != detail::Kind::absent;

namespace detail {

/// The dim that P cuts, with or without halos (-1: none), and the neighbours' rows on each side (-1 of ghosts, which have none).
template <class P>
struct PieceOf {
  static constexpr int dim = shard_dim<P>, before = 0, after = 0;
  static constexpr Border border = Border::closed;
};
template <class A, int Dim, int Before, int After, Border B>
struct PieceOf<Halo<A, Dim, Before, After, B>> {
  static constexpr int dim = Dim, before = Before, after = After;
  static constexpr Border border = B;
};
template <class A, int Dim, int Before, int After, Border B>
struct PieceOf<HaloTerms<A, Dim, Before, After, B>> : PieceOf<Halo<A, Dim, Before, After, B>> {};
template <class A>
struct PieceOf<Ghosts<A>> {
  static constexpr int dim = 0, before = -1, after = -1;
  static constexpr Border border = Border::closed;
};
template <class A>
struct PieceOf<GhostTerms<A>> : PieceOf<Ghosts<A>> {};

template <class P>
struct Dual {
  using type = P;
};
template <class A>
struct Dual<Replicated<A>> {
  using type = Partial<A>;
};
template <class A>
struct Dual<Partial<A>> {
  using type = Replicated<A>;
};
template <class A, int Dim, int Before, int After, Border B>
struct Dual<Halo<A, Dim, Before, After, B>> {
  using type = HaloTerms<A, Dim, Before, After, B>;
};
template <class A, int Dim, int Before, int After, Border B>
struct Dual<HaloTerms<A, Dim, Before, After, B>> {
  using type = Halo<A, Dim, Before, After, B>;
};
template <class A>
struct Dual<Ghosts<A>> {
  using type = GhostTerms<A>;
};
template <class A>
struct Dual<GhostTerms<A>> {
  using type = Ghosts<A>;
};
}  // namespace detail

/// The placement of the gradient of a tensor placed as P.
template <class P>
using dual_t = typename detail::Dual<P>::type;

static_assert(std::is_same_v<dual_t<dual_t<Partial<tp>>>, Partial<tp>> && std::is_same_v<dual_t<Shard<dp, 0>>, Shard<dp, 0>>);
static_assert(std::is_same_v<dual_t<dual_t<Halo<tp, 2, 1, 0>>>, Halo<tp, 2, 1, 0>>);
static_assert(std::is_same_v<dual_t<dual_t<Ghosts<dp>>>, Ghosts<dp>>);

}  // namespace weft
