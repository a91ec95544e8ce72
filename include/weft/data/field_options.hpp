// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of a field of a batch (data/fields.hpp): the dim that counts a sequence's positions, and the dims of space that domain
// axes cut.
//
//   inline constexpr data::Field<"tokens", std::int32_t, data::SequenceDim<1>> tokens;
//   inline constexpr data::Field<"pressure", float, data::Cut<dx, 2>, data::Cut<dy, 3>> pressure;

#include <bit>
#include <type_traits>

#include <weft/mesh/axis.hpp>
#include <weft/tensor/shape.hpp>

namespace weft {

namespace data {

/// For a field whose samples are sequences: the dim of [samples, shape...] that counts their positions. ContextParallel cuts it,
/// and leaves fields without one whole.
template <int dim>
struct SequenceDim {
  static_assert(dim >= 0 && dim <= 3,
                "weft: a field's SequenceDim counts in [samples, shape...]: 1 is the first dim of a sample");
};

/// For a field of space: the axis that cuts this dim of [samples, shape...]. A rank's batch has its piece only, so no rank loads
/// the whole field; on a mesh without the axis it is the whole.
template <weft::detail::Axis A, int dim>
struct Cut {};

}  // namespace data

namespace detail {
template <class... Options>
inline constexpr int sequence_dim_of = -1;
template <int dim>
inline constexpr int sequence_dim_of<data::SequenceDim<dim>> = dim;
template <class... Options>
inline constexpr bool are_cuts = false;
template <class... A, int... dim>
inline constexpr bool are_cuts<data::Cut<A, dim>...> = true;
template <class... Options>
inline constexpr bool are_field_options = are_cuts<Options...>;
template <int dim>
inline constexpr bool are_field_options<data::SequenceDim<dim>> = true;
/// The bits of the axes that cut a field with these options.
template <class... Options>
inline constexpr unsigned cut_axes_of = 0;
template <class... A, int... dim>
inline constexpr unsigned cut_axes_of<data::Cut<A, dim>...> = (axis_bit<A> | ... | 0u);
/// The dim that axis A cuts; -1: none.
template <class A, class... Options>
inline constexpr int cut_dim_of = -1;
template <class A, class... B, int... dim>
inline constexpr int cut_dim_of<A, data::Cut<B, dim>...> = ((std::is_same_v<A, B> ? dim + 1 : 0) + ... + 0) - 1;
template <class... Options>
inline constexpr bool cuts_fit = true;
template <class... A, int... dim>
inline constexpr bool cuts_fit<data::Cut<A, dim>...> = ((is_domain_axis<A> && dim > 0 && dim < int(Shape::max_rank)) && ...);
/// Whether each axis and each dim occurs once.
template <class... Options>
inline constexpr bool cuts_differ = true;
template <class... A, int... dim>
inline constexpr bool cuts_differ<data::Cut<A, dim>...> =
    std::popcount((axis_bit<A> | ... | 0u)) == int(sizeof...(A)) && std::popcount(((1u << dim) | ... | 0u)) == int(sizeof...(A));
}  // namespace detail

}  // namespace weft
