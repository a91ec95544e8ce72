// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rows and columns of the whole batch a tensor's local elements are: what positions and dropout masks are functions of,
// so that they do not depend on the layout.

#include <cstddef>

#include <weft/nn/context.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// The place of a local matrix in the global batch.
struct Place {
  std::size_t first_row = 0;     ///< token of the global batch
  std::size_t first_column = 0;  ///< global column
  std::size_t columns = 0;       ///< of the whole row
};

namespace detail {
template <class X>
struct PlaceOf;
template <class T, class E, class... P>
struct PlaceOf<Tensor<T, E, P...>> {
  template <class Context>
  static Place find(const Context& context, const Tensor<T, E, P...>& x) {
    Place place{context.env.first_row, 0, x.columns()};
    [[maybe_unused]] const auto add = [&]<class Q>(std::type_identity<Q>) {
      using A = typename Q::axis;
      // Over dp a rank has sequences of its own, which the environment counts; other axes cut the rows of a micro-batch.
      if constexpr (shard_dim<Q> == 0 && !std::is_same_v<A, dp>) place.first_row += context.rank(A{}) * x.rows();
      if constexpr (shard_dim<Q> == 1) {
        place.first_column += context.rank(A{}) * x.columns();
        place.columns *= context.size(A{});
      }
    };
    (add(std::type_identity<P>{}), ...);
    return place;
  }
};
}  // namespace detail

template <class Context, AnyTensor X>
Place place_of(const Context& context, const X& x) {
  return detail::PlaceOf<X>::find(context, x);
}

/// The position in its sequence of each of the local rows, [rows]. Rows of a micro-batch are whole sequences of
/// context.env.length tokens, one after the other.
template <class Context, AnyTensor X>
auto positions_of(const Context& context, const X& x) {
  Tensor<std::int32_t, typename X::execution_space> positions(x.device(), {x.rows()});
  const std::size_t first = place_of(context, x).first_row, length = context.env.length;
  std::int32_t* out = positions.data();
  Kokkos::parallel_for("weft::positions", Kokkos::RangePolicy<typename X::execution_space>(x.device().exec(), 0, x.rows()),
                       KOKKOS_LAMBDA(const std::size_t row) { out[row] = static_cast<std::int32_t>((first + row) % length); });
  return positions;
}

}  // namespace weft
