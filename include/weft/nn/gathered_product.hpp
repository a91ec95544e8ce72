// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products with rows that tp shards (sequence parallelism), overlapped with their communication: pieces of rows are passed around
// a ring, and while one is multiplied the next one arrives (Wang et al., ASPLOS 2023). The gathered tensor never exists as a
// whole. Rows that several products need are gathered once, in pieces, with TensorOptions::piece_bytes
// (tensor/gather_in_pieces.hpp).
//
//   gathered_product<0>(context.comm(tp{}), x, w, y, bias);
//
// Numerics: the rows of each rank have the bits of a product of that rank's rows alone, a function of the shapes and of tp, so a
// reproducible run keeps its bits for every dp and pp. They differ from the product of all gathered rows by rounding: libraries
// sum in an order that depends on the number of rows (oneDNN in float and bfloat16, cuBLAS; in double only for 4 rows or fewer of
// a rank). Sums over rows are added piece by piece, this rank's first.

#include <cstddef>
#include <span>
#include <type_traits>

#include <weft/comm/ring.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

template <class X>
inline constexpr bool rows_cut_over_tp = false;
template <class T, class E, class... P>
inline constexpr bool rows_cut_over_tp<Tensor<T, E, P...>> = (std::is_same_v<P, Shard<tp, 0>> || ...);

/// The type of lᵀ r.
template <class L, class R>
using product_of_rows_t = contract_t<L, R, 1, 1>;

/// Calls work(piece, its first row among all rows, progress) for each rank's rows of x [rows, columns]. Collective over comm.
template <AnyTensor X, class Work>
void for_each_rank_rows(const Communicator& comm, const X& x, Work&& work) {
  using T = typename X::value_type;
  const std::size_t ranks = std::size_t(comm.size()), rank = std::size_t(comm.rank());
  X piece(x.device(), x.shape()), spare(x.device(), x.shape());
  kernels::cast<T, T>(x.device(), x.size(), x.data(), piece.data());
  comm::ring_exchange(comm, std::span<T>(piece.data(), piece.size()), std::span<T>(spare.data(), spare.size()),
                      [&](int step, std::span<T> rows, auto&& progress) {
                        work(rows.data(), (rank + ranks - std::size_t(step)) % ranks * x.rows(), progress);
                      });
}

/// y [ranks · rows, out] = all rows of x times w, plus bias [out] unless it is null; RJ as in `linear`.
template <int RJ, AnyTensor X, AnyTensor W, AnyTensor Y>
void gathered_product(const Communicator& comm, const X& x, const W& w, const Y& y, const typename X::value_type* bias) {
  using T = typename X::value_type;
  const auto e = matmul_extents(x, w, false, RJ);
  for_each_rank_rows(comm, x, [&](const T* rows, std::size_t first, auto&& progress) {
    kernels::matmul<T, T>(x.device(), kernels::Transpose::no, RJ ? kernels::Transpose::no : kernels::Transpose::yes, e.m, e.n,
                          e.k, rows, e.k, w.data(), w.columns(), y.data() + first * e.n, e.n, false, bias);
    progress();
  });
}

/// Adds gᵀ x to gradient [out, in], or with in_out xᵀ g to gradient [in, out], over all rows; g [ranks · rows, out]. `fresh`: the
/// gradient is overwritten.
template <bool in_out, AnyTensor X, AnyTensor G, class A>
void accumulate_gathered_product(const Communicator& comm, const X& x, const G& g, A* gradient, bool fresh) {
  using T = typename X::value_type;
  const std::size_t in = x.columns(), out = g.columns();
  for_each_rank_rows(comm, x, [&](const T* rows, std::size_t first, auto&& progress) {
    const T* const g_rows = g.data() + first * out;
    const T *const left = in_out ? rows : g_rows, *const right = in_out ? g_rows : rows;
    const std::size_t m = in_out ? in : out, n = in_out ? out : in;
    kernels::matmul<T, A>(x.device(), kernels::Transpose::yes, kernels::Transpose::no, m, n, x.rows(), left, m, right, n,
                          gradient, n, !fresh, nullptr);
    fresh = false;
    progress();
  });
}

}  // namespace weft::detail
