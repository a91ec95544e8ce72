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

#include <type_traits>

#include <weft/mesh/axis.hpp>

namespace weft {

template <detail::Axis A>
struct Invariant {
  using axis = A;
};
template <detail::Axis A>
struct Replicated {
  using axis = A;
};
template <detail::Axis A, int Dim>
struct Shard {
  using axis = A;
};
template <detail::Axis A>
struct Partial {
  using axis = A;
};
/// The placement on an axis that the tensor's type does not mention; never written by users.
template <detail::Axis A>
struct Absent {
  using axis = A;
};

namespace detail {

enum class Kind { absent, invariant, replicated, shard, partial };

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

}  // namespace detail

/// True if every rank holds the whole value.
template <class P>
inline constexpr bool is_whole = detail::kind_of<P> == detail::Kind::invariant || detail::kind_of<P> == detail::Kind::replicated;

/// The dim that P shards; -1 if P shards none.
template <class P>
inline constexpr int shard_dim = -1;
template <class A, int Dim>
inline constexpr int shard_dim<Shard<A, Dim>> = Dim;

template <class P>
concept Placement = requires {
  typename P::axis;
}
&&detail::kind_of<P> != detail::Kind::absent;

namespace detail {
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
}  // namespace detail

/// The placement of the gradient of a tensor placed as P.
template <class P>
using dual_t = typename detail::Dual<P>::type;

static_assert(std::is_same_v<dual_t<dual_t<Partial<tp>>>, Partial<tp>> && std::is_same_v<dual_t<Shard<dp, 0>>, Shard<dp, 0>>);

}  // namespace weft
