// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over ranks of a matrix whose rows are pending: while a piece of rows is summed, the next piece is computed.
//
//   all_reduce_in_pieces(comm, raw(x), y);        // y [rows, columns]
//   reduce_scatter_in_pieces(comm, raw(x), y);    // y [rows / ranks, columns]
//
// Numerics: those of one sum of the same terms, since each element is summed in rank order. The order of NCCL's sums over more
// than two ranks depends on an element's place in the buffer, so their bits may differ.

#include <cstddef>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/write_rows.hpp>

namespace weft::detail {

/// Sums that are under way. They end before the memory that they use.
class SumsUnderWay {
 public:
  void add(Request sum) {
    sums_.push_back(std::move(sum));
    for (Request& other : sums_) other.test();
  }
  void wait() {
    for (Request& sum : sums_) sum.wait();
  }

 private:
  std::vector<Request> sums_;
};

/// y [rows, columns] = the sum of all ranks' x, whose rows are pending. Collective.
template <class T, class Exec>
void all_reduce_in_pieces(const Communicator& comm, const Tensor<T, Exec>& x, const Tensor<T, Exec>& y) {
  SumsUnderWay sums;
  const std::size_t pieces = x.pending()->pieces();
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const auto [first, count] = RowPiece(y.rows(), piece, pieces);
    const Tensor<T, Exec> part = matrix_rows(y, first, count);
    write_rows(x, first, count, part.data());
    sums.add(comm.all_reduce_async(part));
  }
  sums.wait();
}

/// y [rows / ranks, columns] = this rank's part of the sum. Collective.
template <class T, class Exec>
void reduce_scatter_in_pieces(const Communicator& comm, const Tensor<T, Exec>& x, const Tensor<T, Exec>& y) {
  const std::size_t ranks = std::size_t(comm.size()), pieces = x.pending()->pieces();
  const Tensor<T, Exec> terms(y.device(), {ranks * y.rows(), y.columns()});  // by piece, then by rank
  SumsUnderWay sums;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const auto [first, count] = RowPiece(y.rows(), piece, pieces);
    const Tensor<T, Exec> part = matrix_rows(terms, first * ranks, count * ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      write_rows(x, rank * y.rows() + first, count, part.data() + rank * count * y.columns());
    sums.add(comm.reduce_scatter_async(part, matrix_rows(y, first, count)));
  }
  sums.wait();
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void all_reduce_in_pieces(const Communicator&, const Tensor<float, Kokkos::DefaultHostExecutionSpace>&,
                                          const Tensor<float, Kokkos::DefaultHostExecutionSpace>&);
extern template void all_reduce_in_pieces(const Communicator&, const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&,
                                          const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&);
extern template void reduce_scatter_in_pieces(const Communicator&, const Tensor<float, Kokkos::DefaultHostExecutionSpace>&,
                                              const Tensor<float, Kokkos::DefaultHostExecutionSpace>&);
extern template void reduce_scatter_in_pieces(const Communicator&, const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&,
                                              const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&);
}  // namespace weft::detail
#endif
