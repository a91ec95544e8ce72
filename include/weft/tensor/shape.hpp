// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a tensor: up to four dims, row-major, no allocation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <weft/core/checked.hpp>

namespace weft {

/// How a rank's elements along a dim that an axis cuts lie in the whole dim (ParameterSharding, layer/parameter_sharding.hpp), as far as no type knows it.
enum class DimSharding : std::uint8_t {
  even,        ///< rank r has the r-th of equal parts; also of a dim that no axis cuts
  padded,      ///< one after the other with padding at the end (vocabulary)
  segments,    ///< a part of each of several segments (query, key and value in one matrix)
  replicated,  ///< some elements are held alike by several ranks (fewer key-value heads than ranks)
};

class Shape {
 public:
  static constexpr std::size_t max_rank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::size_t> extents) : rank_(static_cast<std::uint32_t>(extents.size())) {
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
    for (std::size_t dim = 0; dim < rank_; ++dim) product = detail::checked_multiply(product, extents_[dim], "a tensor's size");
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

  /// Of extents alone: a mark (`cut`) makes no other shape.
  friend constexpr bool operator==(const Shape& a, const Shape& b) { return a.rank_ == b.rank_ && a.extents_ == b.extents_; }

  /// How this dim is cut. Operations carry it from their operands to their results, so that what needs the place of an element
  /// in the whole (dropout, a gather) can refuse where it has none.
  constexpr DimSharding sharding(std::size_t dim) const { return dim < max_rank ? static_cast<DimSharding>(cuts_ >> (2 * dim) & 3u) : DimSharding::even; }
  constexpr Shape& set_sharding(std::size_t dim, DimSharding how) {
    if (dim < max_rank) cuts_ = static_cast<std::uint8_t>((cuts_ & ~(3u << (2 * dim))) | (static_cast<unsigned>(how) << (2 * dim)));
    return *this;
  }
  /// The cuts of all dims, to compare or to copy.
  constexpr std::uint8_t cuts() const { return cuts_; }
  /// This shape, each dim cut as the less even of the two.
  constexpr Shape with_cuts_of(const Shape& other) const {
    Shape both = *this;
    for (std::size_t dim = 0; dim < rank_; ++dim)
      if (other.sharding(dim) > sharding(dim)) both.set_sharding(dim, other.sharding(dim));
    return both;
  }

  /// "[2, 3]", for messages.
  WEFT_COLD std::string text() const {
    std::string out = "[";
    for (std::size_t dim = 0; dim < rank_; ++dim) detail::append_to(out, {dim ? ", " : "", extents_[dim]});
    return out += ']';
  }

 private:
  std::array<std::size_t, max_rank> extents_{};
  std::uint32_t rank_ = 0;
  std::uint8_t cuts_ = 0;  // two bits a dim
};

}  // namespace weft
