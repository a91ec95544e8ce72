// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix whose rows are not computed yet. A product that is a term of a sum over ranks returns one, so that `to` can compute it
// in pieces of rows and sum each piece while the next one is computed. Every other use of the tensor computes all rows at once.
//
//   auto rows = std::make_shared<PendingRows>(pieces, count, allocate, [=](std::size_t first, std::size_t n, void* out) { ... });
//   Tensor<float, Exec, Partial<tp>> y(device, {count, columns}, rows);

#include <cstddef>
#include <functional>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/device/arena.hpp>

namespace weft::detail {

class PendingRows {
 public:
  /// Writes `count` rows, from row `first` on, to `out`.
  using Compute = std::function<void(std::size_t first, std::size_t count, void* out)>;

  PendingRows(std::size_t pieces, std::size_t rows, std::function<Buffer()> allocate, Compute compute)
      : pieces_(pieces), rows_(rows), allocate_(std::move(allocate)), compute_(std::move(compute)) {}

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
  Buffer buffer_;
};

}  // namespace weft::detail
