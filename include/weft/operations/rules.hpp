// SPDX-License-Identifier: Apache-2.0
#pragma once
// The placement rules of the operations that layers call: the table, and the functions on types that compute it from the values
// of tensor/placement_rules.hpp, which DTensor reads too. One row holds for one axis; axes do not influence each other. I is
// Invariant, R Replicated, S(d) Shard along dim d, P Partial. The gradient of an operand is placed as its dual, and no operation
// communicates in forward or backward except as its row states. H(d, b, f) is Halo, T(d, b, f) HaloTerms. Rows of functions that
// compute each element from those at its place, the first ten, take H where they take S, and T where they take P beside H as R;
// all other rows refuse both. A row with "space" also takes S(k > 1) over domain axes, of Variables, and gives it: windows bring
// the neighbours' rows, norms sum their statistics; global_avg_pool2d gives I there.
//
//   operation                       operands on one axis                     result                  refused, with the reason
//   exp(x), relu(x), clamp(x, ...)  I, R, S(d)                               as x                    P: f of a sum is no sum of f
//   sin, abs, pow, softplus, ...    as exp
//   -x, x * 2, x / 2                any                                      as x
//   x + 2, 2 - x, 2 / x             I, R, S(d)                               as x                    P: each rank would add it
//   x + y, x - y                    alike, broadcast                         alike                   others: to_layout_of<X>
//   x * y                           alike, not P; P by R; broadcast          alike; P                P by P
//   x / y                           alike, not P; P by R; broadcast          alike; P                by P
//   broadcast (broadcast.hpp)       S(d) by R with one element or no such dim  S(d)                  S(d) by R with more
//                                   S(d) by S(d - k), with k dims more       S(d)                    two dims that are not
//                                   aligned
//   maximum, minimum, pow, x < y    alike, not P; broadcast                  alike                   P
//   where(c, x, y)                  x and y alike, c whole or cut alike;     as x                    P by S(d) of c
//                                   broadcast
//   attention(q, k, v, {}, mask)    I, R, S(0); mask whole, or both S(0)     as q                    mask S(0) of whole heads
//                                   mask I beside R, S(0) all-reduces in backward
//   sum<d>(x), sum(x)               S(d)                                     P
//                                   S(k > d)                                 S(k - 1)
//                                   I, R, P, S(k < d)                        as x
//   sum_rows(x)                     S(k), k not the last dim                 P
//                                   S(last)                                  S(0)                    S(1) of three dims or more
//   mean<d>(x), mean(x)             I, R, P, S(k != d), mean<d> space k = d  as sum<d>               other S(d): a part's extent
//   max<d>(x), argmax<d>(x)         I, R, S(k != d), max<d> space k = d      as sum<d>; I of space   other S(d), P
//   softmax<d>, log_softmax<d>      I, R, S(k != d)                          as x                    S(d), P
//   permute<d...>, transpose<a, b>  any                                      S(d) where d has gone
//   flatten<a, b>(x)                I, R, P, S(k <= a), S(k > b)             S(k > b): S(k - b + a)  S(a < k <= b): no one cut
//   unflatten<d>(x, inner...)       any; S(d) cuts the outermost             S(k > d) moves along    over cp S(0): two chunks
//   merge_samples(x)                I, R, P; over cp and dx S(1)             over these S(0)         other axes' S(1)
//   split_samples(x)                I, R, P, S(k > 0); over cp and dx S(0)   over these S(1)         tp S(0): no whole samples
//   reshape(x, shape)               I, R, P, S(0)                            as x                    S(k > 0)
//   slice<d>, chunk<d>, concat<d>   I, R, P, S(k != d)                       as x                    S(d): counted in the whole
//   pad<d>, flip<d>, roll<d>        I, R, P, S(k != d)                       as x                    S(d): needs its neighbours
//   cumsum<d>(x)                    I, R, P, S(k != d)                       as x                    S(d): needs those before
//   fft<d...>(z), rfft, ifft, irfft I, R, P, S(k), k none of d               as z                    S(d)
//   sort<d>(x), topk<d>(x, count)   I, R, S(k != d)                          as x                    S(d), P
//   index_select(x, ids)            I, R, P, S(k > 0), ids whole             as x                    x S(0): ranks lack rows
//                                   x R, ids S(0); over dp both S(0)         S(0)                    x I, ids S(0): not entered
//                                   both S(0), local_ids on any axis         S(0)
//                                   x Ghosts, ids S(0) of its graph          S(0)
//   scatter_add(x, ids, segments)   I, R, P, S(k > 0), ids whole             as x                    x S(0), ids whole
//                                   both S(0): terms of each segment         P
//                                   over dp, or with local_ids, both S(0)    S(0)
//   segment_mean                    as scatter_add                           as it                   both S(0): not P
//   segment_max, segment_softmax    as segment_mean, not P                   as it; softmax as x     P
//   batched_matmul(x, y)            both S(0), the batch                     S(0)                    the batch of one
//                                   as matmul along dims 1 and 2             as matmul               as matmul
//   einsum<"...">(x, y)             as matmul, by letters: S of one letter   S, or P without it      a letter cut in one of two
//   conv1d, conv2d, conv3d(x, w)    I and I; R and R                         the same                I by R or S: not entered
//                                   x S(0), w R: samples                     S(0)                    x S(k > 1): neighbours
//                                   x R, w S(0): output channels             S(1)
//                                   x S(1), w S(1): input channels           P
//                                   x P, w I or R                            P                       P by P
//   conv_transpose2d(x, w), ...     as conv2d, w's S(0) and S(1) exchanged
//   depthwise_conv2d(x, w), ...     x S(1), w S(0); else as conv2d           S(1)                    w S(1)
//   bias of conv2d, ...             as add_row: S(0) beside S(1)                                     whole beside S(1)
//   max_pool2d(x), ...              I, R, S(0), S(1), space                  as x                    other S(k > 1), P
//   avg_pool2d, global_avg_pool2d   I, R, P, S(0), S(1), space               as x                    other S(k > 1)
//   conv2d<Window>(x, w), ...       x H(k > 1, b, f) over the window's reach H(k, b', f')            too narrow; other than the
//   max_pool2d<Window>(x), ...      (before, after), a stride exactly; w R   S(k) if b' = f' = 0     reach with a stride
//                                   b' = b - before, f' = f - after; other placements as without a window
//   upsample(x)                     I, R, P, S(0), S(1), space               as x                    other S(k > 1)
//   pixel_shuffle(x)                as unflatten<1>, permute, flatten        as x
//   BatchNorm(x)                    I, R, S(0), S(1), space                  as x                    other S(k > 1), P
//                                   S(0) all-reduces in forward and backward
//   GroupNorm(x), InstanceNorm(x)   I, R, S(0), S(1) in whole groups, space  as x                    other S(k > 1), P
//   mse, bce_with_logits            both I; both S(0)                        I; P                    R: counted by all; S(1), P
//   cross_entropy(z, labels)        I; S(0); over tp also S(1)               I; P; I                 R: counted by all; P

#include <array>
#include <cstddef>
#include <type_traits>

#include <weft/engine/operand.hpp>
#include <weft/tensor/placement_rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// X with each placement P replaced by Rule::of<P>, and elements of type S.
template <class Rule, class S, class X>
struct Ruled;
template <class Rule, class S, class T, class E, class... P>
struct Ruled<Rule, S, Tensor<T, E, P...>> {
  using type = Tensor<S, E, typename Rule::template of<P>...>;
};
template <class Rule, class X, class S = typename X::value_type>
using ruled_t = typename Ruled<Rule, S, X>::type;

template <class P, int Dim>
struct CutAt {
  using type = Shard<typename P::axis, Dim>;
};
/// P, with the dim that it cuts renumbered as `Dim`.
template <class P, int Dim>
using cut_at = typename std::conditional_t<(shard_dim<P> < 0), std::type_identity<P>, CutAt<P, Dim>>::type;

// The rules of placement_rules.hpp on types. They have dims to spare, since a type does not state its tensor's rank.
inline constexpr int spare_rank = 8;

/// Dim is summed and gone.
template <int Dim>
struct SumOver {
  static constexpr OperationRule rule = reduction_rule(spare_rank, 1u << Dim, false, Reduction::sum);
  template <class P>
  using of = result_t<rule, P>;
};
/// Dim d of the result is dim Dims[d] of the operand.
template <int... Dims>
struct Permuted {
  static constexpr int count = int(sizeof...(Dims));
  static constexpr std::array<int, sizeof...(Dims)> dims = {Dims...};
  static constexpr bool valid = [] {
    for (int dim = 0; dim < count; ++dim) {
      bool found = false;
      for (const int from : dims) found = found || from == dim;
      if (!found) return false;
    }
    return true;
  }();
  /// The place of the operand's dim in the result.
  static constexpr int place_of(int from) {
    for (int dim = 0; dim < count; ++dim)
      if (dims[std::size_t(dim)] == from) return dim;
    return from;
  }
  static constexpr OperationRule rule = permutation_rule(dims);
  template <class P>
  using of = result_t<rule, P>;
};
/// Dims First to Last become one.
template <int First, int Last>
struct Flattened {
  static constexpr OperationRule rule = flatten_rule(spare_rank, First, Last);
  template <class P>
  using of = result_t<rule, P>;
};
/// Dim becomes `Count` dims, of which an axis cuts the outermost.
template <int Dim, int Count>
struct Unflattened {
  static constexpr OperationRule rule = unflatten_rule(spare_rank, Dim, Count);
  template <class P>
  using of = result_t<rule, P>;
};

/// Whether an axis cuts one of the dims First to Last.
template <class X, int First, int Last>
inline constexpr bool cut_between = false;
template <class T, class E, class... P, int First, int Last>
inline constexpr bool cut_between<Tensor<T, E, P...>, First, Last> = ((shard_dim<P> >= First && shard_dim<P> <= Last) || ...);

/// Whether two tensors name the same axes, in one order, in the memory of one device.
template <class X, class Y>
inline constexpr bool same_axes = false;
template <class T, class U, class E, class... PX, class... PY>
inline constexpr bool same_axes<Tensor<T, E, PX...>, Tensor<U, E, PY...>> =
    std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>;

/// Whether two placements give a rank the same elements.
template <class P, class Q>
inline constexpr bool same_piece =
    PieceOf<P>::dim == PieceOf<Q>::dim&& PieceOf<P>::before == PieceOf<Q>::before&& PieceOf<P>::after ==
    PieceOf<Q>::after&& PieceOf<P>::border == PieceOf<Q>::border;
/// Whether the elements of two tensors are on the same ranks: on each axis both whole, or both cut along one dim with one halo.
template <class X, class Y>
inline constexpr bool lie_alike = false;
template <class T, class U, class E, class... PX, class... PY>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>) inline constexpr bool lie_alike<
    Tensor<T, E, PX...>, Tensor<U, E, PY...>> = ((same_piece<PX, PY> && !has_terms<PY>)&&...);

/// Shape without `dim`, [1] if there is no other; the others keep their DimSharding.
inline Shape without_dim(const Shape& shape, std::size_t dim) {
  if (shape.rank() < 2) return {1};
  Shape out = Shape::of_rank(shape.rank() - 1);
  for (std::size_t from = 0, to = 0; from < shape.rank(); ++from)
    if (from != dim) {
      out[to] = shape[from];
      out.set_sharding(to++, shape.sharding(from));
    }
  return out;
}
/// Throws ShapeError unless the tensor has this dim.
inline void require_dim(const char* operation, NamedOperand x, int dim) {
  if (dim < 0 || std::size_t(dim) >= x.shape().rank())
    throw_error<ShapeError>({call_text(operation, {x}), ": there is no dim ", dim});
}

}  // namespace weft::detail
