// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a tensor: up to four dims, row-major, no allocation.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>

#include <weft/core/checked.hpp>

namespace weft {

class Shape {
 public:
  static constexpr std::size_t max_rank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::size_t> extents) : rank_(extents.size()) {
    if (extents.size() > max_rank) throw_error<ShapeError>({"a Shape has at most 4 dims, not ", extents.size()});
    std::size_t dim = 0;
    for (const std::size_t extent : extents) extents_[dim++] = extent;
  }

  constexpr std::size_t rank() const { return rank_; }
  constexpr std::size_t operator[](std::size_t dim) const { return extents_[dim]; }
  constexpr std::size_t& operator[](std::size_t dim) { return extents_[dim]; }

  /// Number of elements: 1 for a scalar (rank 0).
  WEFT_OUT_OF_LINE constexpr std::size_t size() const {
    std::size_t product = 1;
    for (std::size_t dim = 0; dim < rank_; ++dim) product = checked_multiply(product, extents_[dim], "a tensor's size");
    return product;
  }
  /// The extent of the last dim; 1 for a scalar.
  constexpr std::size_t columns() const { return rank_ == 0 ? 1 : extents_[rank_ - 1]; }
  /// The product of all other extents.
  constexpr std::size_t rows() const {
    std::size_t product = 1;
    for (std::size_t dim = 0; dim + 1 < rank_; ++dim) product *= extents_[dim];
    return product;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;

  /// "[2, 3]", for messages.
  WEFT_COLD std::string text() const {
    std::string out = "[";
    for (std::size_t dim = 0; dim < rank_; ++dim) append_to(out, {dim ? ", " : "", extents_[dim]});
    return out += ']';
  }

 private:
  std::array<std::size_t, max_rank> extents_{};
  std::size_t rank_ = 0;
};

}  // namespace weft
