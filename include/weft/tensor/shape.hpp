// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a tensor: up to six dims, row-major, no allocation.
//
//   const Shape shape{tokens, width};
//   shape.rows() * shape.columns() == shape.size();
//   const Shape same = Shape::of(std::span(extents));   // as many dims as there are extents

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <weft/core/checked.hpp>
#include <weft/core/text.hpp>

namespace weft {

/// The division of a dim over the ranks of an axis, if no type states it (ParameterSharding, engine/parameter_cut.hpp).
enum class DimSharding : std::uint8_t {
  even,        ///< rank r has the r-th of equal parts; also a dim that no axis divides
  padded,      ///< consecutive parts with padding at the end (vocabulary)
  segments,    ///< a part of each of several segments (query, key and value in one matrix)
  replicated,  ///< several ranks hold the same elements (fewer key-value heads than ranks)
};

/// The extents of a tensor, the slowest dim first.
class Shape {
 public:
  static constexpr std::size_t max_rank = 6;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::size_t> extents) : Shape(of(std::span(extents.begin(), extents.size()))) {}
  /// The shape with these extents, slowest first. Throws ShapeError for more than max_rank.
  template <class N, std::size_t Count>
  static constexpr Shape of(std::span<N, Count> extents) {
    Shape shape = of_rank(extents.size());
    for (std::size_t dim = 0; dim < extents.size(); ++dim) shape[dim] = static_cast<std::size_t>(extents[dim]);
    return shape;
  }
  /// The shape of this rank whose extents are 0. Throws ShapeError for a rank above max_rank.
  static constexpr Shape of_rank(std::size_t rank) {
    if (rank > max_rank) throw_error<ShapeError>({"a Shape has at most ", max_rank, " dims, not ", rank});
    Shape shape;
    shape.rank_ = static_cast<std::uint32_t>(rank);
    return shape;
  }

  constexpr std::size_t rank() const { return rank_; }
  constexpr std::size_t operator[](std::size_t dim) const { return extents_[dim]; }
  constexpr std::size_t& operator[](std::size_t dim) { return extents_[dim]; }

  /// The number of elements: 1 for a scalar (rank 0).
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

  /// Compares extents only; the sharding of a dim does not matter.
  friend constexpr bool operator==(const Shape& a, const Shape& b) { return a.rank_ == b.rank_ && a.extents_ == b.extents_; }

  /// The division of this dim. Operations copy it from their operands to their results, so that operations that need the global
  /// index of an element (dropout, a gather) can refuse a dim without one.
  constexpr DimSharding sharding(std::size_t dim) const {
    return dim < max_rank ? static_cast<DimSharding>(cuts_ >> (2 * dim) & 3u) : DimSharding::even;
  }
  constexpr Shape& set_sharding(std::size_t dim, DimSharding how) {
    if (dim < max_rank)
      cuts_ = static_cast<std::uint16_t>((cuts_ & ~(3u << (2 * dim))) | (static_cast<unsigned>(how) << (2 * dim)));
    return *this;
  }
  /// The divisions of all dims, to compare or to copy.
  constexpr std::uint16_t cuts() const { return cuts_; }
  /// This shape, with the less even division of both shapes in each dim.
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
  std::uint16_t cuts_ = 0;  // two bits per dim
};

namespace detail {
/// The extents as the last of as many as a Shape may have, behind ones.
constexpr std::array<std::size_t, Shape::max_rank> aligned_extents(const Shape& shape) {
  std::array<std::size_t, Shape::max_rank> extents{};
  for (std::size_t dim = 0; dim < extents.size(); ++dim)
    extents[dim] = dim + shape.rank() < extents.size() ? 1 : shape[dim + shape.rank() - extents.size()];
  return extents;
}
}  // namespace detail

}  // namespace weft
