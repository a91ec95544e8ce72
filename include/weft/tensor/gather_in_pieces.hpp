// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gathers of rows whose pieces arrive while the rows that are there are multiplied: under sequence parallelism, before
// column-parallel products and before the products of a row-parallel layer's backward.
//
//   auto y = gather_in_pieces<Y>(comm, x, pieces);                                    // x [rows, columns]
//   for_each_block_of_rows(y, [&](const T* rows, std::size_t first, std::size_t count) { ... });
//
// Numerics: the elements are copied. A product by blocks has the bits of products of the blocks, see nn/summed_product.hpp.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Pieces in which a matrix of `rows` rows of all ranks is summed or gathered over tp behind a product, the same number on all
/// ranks; 1: it is not cut. A piece has TensorOptions::piece_bytes at least, and enough rows of each rank for an efficient
/// product.
template <class Context>
std::size_t pieces_of_rows(const Context& context, std::size_t rows, std::size_t row_bytes) {
  if constexpr (!Context::has(tp{})) {
    return 1;
  } else {
    constexpr std::size_t most = 8, least_rows = 32;
    const std::size_t ranks = std::size_t(context.size(tp{})), least_bytes = context.engine.piece_bytes;
    if (ranks == 1 || least_bytes == 0) return 1;
    return std::clamp(std::min(rows * row_bytes / least_bytes, rows / (least_rows * ranks)), std::size_t(1), most);
  }
}

/// All ranks' rows of x, in rank order; the gather is under way. Collective.
template <AnyTensor Y, AnyTensor X>
Y gather_in_pieces(const Communicator& comm, const X& x, std::size_t pieces) {
  using T = typename X::value_type;
  using Raw = Tensor<T, typename X::execution_space>;
  struct Gather {
    Raw x, gathered;                // gathered: by piece, then by rank
    std::vector<Request> requests;  // last: they end before the memory that they use
  };
  const std::size_t ranks = std::size_t(comm.size()), rank = std::size_t(comm.rank()), rows = x.rows(), columns = x.columns();
  const Y y(x.device(), with_extent(x.shape(), 0, rows * ranks));
  const auto gather = std::make_shared<Gather>(Gather{raw(x), Raw(x.device(), y.shape()), {}});
  const auto copy = [&device = x.device(), columns](const T* from, T* to, std::size_t count) {
    copy_rows(device, 1, count * columns, from, count * columns, to, count * columns);
  };
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const auto [first, count] = RowPiece(rows, piece, pieces);
    gather->requests.push_back(
        comm.all_gather_async(matrix_rows(gather->x, first, count), matrix_rows(gather->gathered, first * ranks, count * ranks)));
  }
  T* const data = y.data();
  copy(gather->x.data(), data + rank * rows * columns, rows);
  const auto progress = [gather] {
    for (Request& request : gather->requests) request.test();
  };
  const auto arrive = [=](std::size_t piece) {
    gather->requests[piece].wait();
    const auto [first, count] = RowPiece(rows, piece, pieces);
    for (std::size_t other = 0; other < ranks; ++other)
      if (other != rank)
        copy(gather->gathered.data() + (first * ranks + other * count) * columns, data + (other * rows + first) * columns, count);
  };
  auto arriving = std::make_shared<ArrivingRows>(ArrivingRows::Layout{ranks, rank, rows, pieces}, data, arrive, progress);
  return Y(x.device(), y.shape(), std::make_shared<PendingRows>(std::move(arriving), y.buffer()));
}

/// Calls work(rows, first, count) for blocks of x's rows that together are all: for all at once, or as they arrive.
template <AnyTensor X, class Work>
void for_each_block_of_rows(const X& x, Work&& work) {
  using T = typename X::value_type;
  ArrivingRows* const arriving = x.arriving();
  if (arriving == nullptr) return work(static_cast<const T*>(x.data()), std::size_t(0), x.rows());
  const T* const data = static_cast<const T*>(arriving->data());
  arriving->for_each_block([&](std::size_t first, std::size_t count) { work(data + first * x.columns(), first, count); });
}

}  // namespace weft::detail
