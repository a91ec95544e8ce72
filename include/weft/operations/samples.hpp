// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of positions and samples of them: a view of [samples, positions, ...] as rows [samples * positions, ...], in which layers
// work (attention, norms, products), and the way back, for values of a whole sample, such as its mean. In every layout: where cp
// cuts sequences, each rank has its positions of each sample, Shard<cp, 1> of the one and Shard<cp, 0> of the other. A domain
// axis that cuts positions, such as the nodes of a graph, is placed alike, in pieces that may have different extents.
//
//   auto rows = merge_samples(batch[series]);           // [samples, positions, features] -> [samples * positions, features]
//   auto mean = to<Invariant<cp>>(sum<1>(split_samples(rows))) / double(positions);

#include <cstddef>
#include <type_traits>

#include <weft/autograd/variable.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

/// The axes that may cut positions: each rank has some of each sample.
template <class A>
inline constexpr bool cuts_positions = std::is_same_v<A, cp> || is_domain_axis<A>;

// Positions move between dims 1 and 0; an axis of samples cuts dim 0 of both.
struct MergedSamples {
  template <class P>
  using of = cut_at<P, (shard_dim<P> > 0 ? shard_dim<P> - 1 : shard_dim<P>)>;
};
struct SplitSamples {
  template <class P>
  using of =
      cut_at<P, (shard_dim<P> > 0 || (shard_dim<P> == 0 && cuts_positions<typename P::axis>) ? shard_dim<P> + 1 : shard_dim<P>)>;
};
template <class X>
inline constexpr bool merges = false;
template <class T, class E, class... P>
inline constexpr bool merges<Tensor<T, E, P...>> = ((shard_dim<P> != 1 || cuts_positions<typename P::axis>)&&...) &&
                                                   (0 + ... + int(shard_dim<P> == 1)) <= 1 &&
                                                   ((shard_dim<P> != 0 || is_data_axis<typename P::axis>)&&...);
template <class X>
inline constexpr bool splits = false;
template <class T, class E, class... P>
inline constexpr bool splits<Tensor<T, E, P...>> = ((shard_dim<P> != 0 || is_data_axis<typename P::axis> ||
                                                     cuts_positions<typename P::axis>)&&...);

template <class X>
constexpr bool require_merges() {
  static_assert(merges<X>,
                "weft: merge_samples of [samples, positions, ...] that another axis than cp or one domain axis cuts along its "
                "positions, or than dp along its samples: gather them first, to<Invariant<axis>>(x)");
  return merges<X>;
}
template <class X>
constexpr bool require_splits() {
  static_assert(splits<X>,
                "weft: split_samples of rows that tp cuts, which are no whole samples (sequence parallelism): gather them first, "
                "to<Invariant<tp>>(x)");
  return splits<X>;
}
/// The shape of rows by samples, or back. `samples`: of the micro-batch on this rank.
inline Shape shape_of_samples(NamedOperand x, std::size_t samples) {
  const Shape& rows = x.shape();
  if (rows.rank() == 0 || rows.rank() == Shape::max_rank || samples == 0 || rows[0] % samples != 0)
    throw_error<ShapeError>({call_text("split_samples", {x}), ": expected [samples * positions, ...] of ", samples, " samples"});
  const std::size_t each = rows[0] / samples;
  Shape shape = Shape::of_rank(rows.rank() + 1);
  shape[0] = samples;
  shape[1] = each;
  for (std::size_t dim = 1; dim < rows.rank(); ++dim) {
    shape[dim + 1] = rows[dim];
    shape.set_sharding(dim + 1, rows.sharding(dim));
  }
  return shape;
}
inline Shape shape_of_rows(NamedOperand x) {
  const Shape& samples = x.shape();
  if (samples.rank() < 2) throw_error<ShapeError>({call_text("merge_samples", {x}), ": expected [samples, positions, ...]"});
  Shape shape = Shape::of_rank(samples.rank() - 1);
  shape[0] = samples[0] * samples[1];
  for (std::size_t dim = 2; dim < samples.rank(); ++dim) {
    shape[dim - 1] = samples[dim];
    shape.set_sharding(dim - 1, samples.sharding(dim));
  }
  return shape;
}

}  // namespace detail

namespace operations {

/// x [samples, positions, ...] as [samples * positions, ...], without a copy.
template <class C, class X>
auto merge_samples(const Variable<C, X>& x) {
  if constexpr (!detail::require_merges<X>()) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(
        x, detail::view_of<detail::ruled_t<detail::MergedSamples, X>>(x.value(), detail::shape_of_rows(x.value())),
        [shape = x.shape()](const auto& g) { return detail::view_of<gradient_t<X>>(g, shape); });
}
/// x [samples * positions, ...], of a micro-batch, as [samples, positions, ...], without a copy. Throws ShapeError if its rows
/// are not as many for each sample.
template <class C, class X>
auto split_samples(const Variable<C, X>& x) {
  if constexpr (!detail::require_splits<X>()) return detail::AlreadyRefused();
  else {
    const detail::Environment& env = x.context().env;
    const std::size_t length = detail::sequence_length(env), samples = length == 0 ? 0 : env.rows / length;
    return detail::record_by_gradient(
        x, detail::view_of<detail::ruled_t<detail::SplitSamples, X>>(x.value(), detail::shape_of_samples(x.value(), samples)),
        [shape = x.shape()](const auto& g) { return detail::view_of<gradient_t<X>>(g, shape); });
  }
}
template <class... More>
detail::AlreadyRefused merge_samples(detail::AlreadyRefused refused, const More&...) {
  return refused;
}
template <class... More>
detail::AlreadyRefused split_samples(detail::AlreadyRefused refused, const More&...) {
  return refused;
}

}  // namespace operations

}  // namespace weft
