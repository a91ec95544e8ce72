// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parallel folding (arXiv:2504.14960): the same ranks as a dense mesh (dp, cp, tp) and as a mesh of experts (edp, ep, etp). If
// every rank has different rows, it does not matter which axes cut them: a tensor is cast from one mesh to the other without
// communication.
//
//   auto there = to_expert_mesh(rows);           // Shard<dp, 0>, Shard<tp, 0>  ->  Shard<edp, 0>, Shard<ep, 0>, Shard<etp, 0>
//   auto back = to_dense_mesh<Rows>(there);

#include <type_traits>

#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {
template <class X>
struct OnExpertMesh;
template <class T, class E, class... P>
struct OnExpertMesh<Tensor<T, E, P...>> {
  static constexpr bool distinct = ((shard_dim<P> == 0) && ...);
  using type = Tensor<T, E, Shard<edp, 0>, Shard<ep, 0>, Shard<etp, 0>>;
};
}  // namespace detail

/// The rows of a tensor of the dense mesh, placed on the expert mesh.
template <AnyTensor X>
auto to_expert_mesh(const X& x) {
  static_assert(detail::OnExpertMesh<X>::distinct,
                "weft: to_expert_mesh: the rows of this tensor are not cut over every axis of the dense mesh, so several ranks "
                "hold the same ones and experts would see them several times: to<Shard<tp, 0>>(context, x) first");
  return relabel<typename detail::OnExpertMesh<X>::type>(x);
}

/// The rows of a tensor of the expert mesh, as the dense tensor type Like.
template <AnyTensor Like, AnyTensor Y>
Like to_dense_mesh(const Y& y) {
  static_assert(std::is_same_v<Y, typename detail::OnExpertMesh<Like>::type>,
                "weft: to_dense_mesh: this tensor has not the layout that to_expert_mesh gives the dense tensor");
  return relabel<Like>(y);
}

}  // namespace weft
