// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix whose rows are not there yet, so that communication is hidden behind products. A product that is a term of a sum over
// ranks returns rows that are not computed: `to` computes them in pieces and sums each piece while the next one is computed. A
// gather returns rows that have not arrived: a product multiplies this rank's rows first, then the other ranks' as they arrive.
// Every other use of the tensor computes, or waits for, all rows at once.
//
//   auto rows = std::make_shared<PendingRows>(pieces, count, allocate, [=](std::size_t first, std::size_t n, void* out) { ... });
//   Tensor<float, Exec, Partial<tp>> y(device, {count, columns}, rows);

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/device/arena.hpp>

namespace weft::detail {

/// Piece `piece` of `pieces` of `rows` rows. The numbers of rows differ by one at most.
struct RowPiece {
  std::size_t first, count;
  constexpr RowPiece(std::size_t rows, std::size_t piece, std::size_t pieces)
      : first(rows * piece / pieces), count(rows * (piece + 1) / pieces - first) {}
};

/// The rows of all ranks, `rows` of each in rank order, that are gathered in pieces.
class ArrivingRows {
 public:
  struct Layout {
    std::size_t ranks, rank, rows, pieces;  ///< this rank's rows lie in `data` already
  };
  /// arrive(piece) returns when this RowPiece of every rank is in `data`; it is called once for each piece, in order. progress()
  /// advances later pieces.
  ArrivingRows(const Layout& layout, void* data, std::function<void(std::size_t)> arrive, std::function<void()> progress)
      : layout_(layout), data_(data), arrive_(std::move(arrive)), progress_(std::move(progress)) {}

  void* data() const { return data_; }
  /// Calls work(first row, rows) for blocks that together are all rows: this rank's, then the others' as they arrive. The blocks
  /// are a function of the layout, never of time.
  template <class Work>
  void for_each_block(Work&& work) {
    for_each_piece([&](std::size_t first, std::size_t count) { work(layout_.rank * layout_.rows + first, count); });
    std::size_t piece = 0;
    for_each_piece([&](std::size_t first, std::size_t count) {
      arrive(piece++);
      for (std::size_t rank = 0; rank < layout_.ranks; ++rank)
        if (rank != layout_.rank) work(rank * layout_.rows + first, count);
    });
  }
  /// Returns when all rows are there.
  void wait() {
    for (std::size_t piece = arrived_; piece < layout_.pieces; ++piece) arrive(piece);
  }

 private:
  template <class Work>
  void for_each_piece(Work&& work) {
    for (std::size_t piece = 0; piece < layout_.pieces; ++piece) {
      const RowPiece at(layout_.rows, piece, layout_.pieces);
      work(at.first, at.count);
      if (progress_) progress_();
    }
  }
  void arrive(std::size_t piece) {
    if (piece < arrived_) return;
    arrive_(piece);
    if (++arrived_ < layout_.pieces) return;
    arrive_ = nullptr;  // releases the buffers of the gather
    progress_ = nullptr;
  }

  Layout layout_;
  void* data_;
  std::size_t arrived_ = 0;  // pieces
  std::function<void(std::size_t)> arrive_;
  std::function<void()> progress_;
};

class PendingRows {
 public:
  /// Writes `count` rows, from row `first` on, to `out`.
  using Compute = std::function<void(std::size_t first, std::size_t count, void* out)>;

  PendingRows(std::size_t pieces, std::size_t rows, std::function<Buffer()> allocate, Compute compute)
      : pieces_(pieces), rows_(rows), allocate_(std::move(allocate)), compute_(std::move(compute)) {}
  /// `data`: the buffer of the rows that arrive.
  PendingRows(std::shared_ptr<ArrivingRows> arriving, Buffer data)
      : PendingRows(
            1, 0, [data = std::move(data)] { return data; }, [arriving](std::size_t, std::size_t, void*) { arriving->wait(); }) {
    arriving_ = std::move(arriving);
  }

  /// The rows that arrive, in which case the members that compute must not be used; else null.
  ArrivingRows* arriving() const { return arriving_.get(); }
  /// The number of pieces in which a sum of all rows is to be made.
  std::size_t pieces() const { return pieces_; }
  bool computed() const { return bool(buffer_); }
  /// May be called until all rows are computed, also several times for the same rows: a product that is summed twice is computed
  /// twice.
  void compute(std::size_t first, std::size_t count, void* out) const { compute_(first, count, out); }
  /// All rows.
  WEFT_OUT_OF_LINE const Buffer& buffer() {
    if (buffer_) return buffer_;
    Buffer made = allocate_();
    compute_(0, rows_, made.get());
    allocate_ = nullptr;
    compute_ = nullptr;  // releases the operands
    buffer_ = std::move(made);
    return buffer_;
  }

 private:
  std::size_t pieces_, rows_;
  std::function<Buffer()> allocate_;
  Compute compute_;
  std::shared_ptr<ArrivingRows> arriving_;
  Buffer buffer_;
};

}  // namespace weft::detail
