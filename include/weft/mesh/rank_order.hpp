// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of ranks along each axis: pure arithmetic on an order string such as "tp-cp-ep-dp-pp" (fastest axis first) and the
// degrees. The same ranks form two grids, dense (tp, cp, dp, pp) and expert (etp, ep, edp, pp), so that experts can be
// distributed differently from attention (parallel folding, arXiv:2504.14960).
//
//   RankGrids grids = rank_grids(RankOrder("tp-cp-ep-dp-pp"), 16, {.tp = 2, .etp = 2, .pp = 4});
//   grids.dense.groups({"dp"});   // {{0, 2}, {1, 3}, {4, 6}, ...}

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/mesh/axis.hpp>

namespace weft {

namespace mesh_layout {

using RankGroups = std::vector<std::vector<std::size_t>>;

}  // namespace mesh_layout

namespace detail {

/// The product, or the largest std::size_t if it overflows.
constexpr std::size_t saturating_product(std::initializer_list<std::size_t> factors) {
  std::size_t product = 1;
  for (const std::size_t f : factors)
    if (f == 0) return 0;
  for (const std::size_t f : factors)
    product = product > std::numeric_limits<std::size_t>::max() / f ? std::numeric_limits<std::size_t>::max() : product * f;
  return product;
}

/// The divisors of n, ascending, as a text: "1, 2, 3 or 6"; a long list is shortened in its middle.
std::string divisors_text(std::size_t n);

std::string number(std::string_view name, std::size_t value);

/// Appends a factor to a product as text: "tp(2) * pp(4)".
void append_factor(std::string& product, std::string_view name, std::size_t value);

}  // namespace detail

namespace mesh_layout {

/// One axis of a grid of ranks.
struct RankAxis {
  std::string_view name;
  std::size_t size;
  bool user = false;  ///< a user-defined axis

  friend bool operator==(const RankAxis&, const RankAxis&) = default;
};

/// Ranks laid out over axes, the first of which varies fastest: rank = Σ coordinate · stride, stride[first] = 1.
class RankGrid {
 public:
  RankGrid() = default;
  explicit RankGrid(std::vector<RankAxis> fastest_first) : axes_(std::move(fastest_first)) {}

  const std::vector<RankAxis>& axes() const { return axes_; }

  std::size_t size() const {
    std::size_t product = 1;
    for (const RankAxis& axis : axes_) product *= axis.size;
    return product;
  }

  bool has(std::string_view name) const {
    for (const RankAxis& axis : axes_)
      if (axis.name == name) return true;
    return false;
  }

  /// A rank's position in the partition of all ranks by a set of axes: the number of its group, its number in the group, and the
  /// group's size. Members are counted over the axes of the set, groups over the other axes, both with the first axis of the
  /// order fastest. The order of the names does not matter.
  struct Place {
    std::size_t group, member, size;

    friend bool operator==(const Place&, const Place&) = default;
  };
  Place place(std::size_t rank, const std::vector<std::string_view>& names) const { return place(rank, mask(names)); }

  /// All groups of a set of axes: `groups({"dp", "cp"})`. They partition the ranks.
  RankGroups groups(const std::vector<std::string_view>& names) const;

  /// "tp(2) * pp(4)"; axes of size 1 are omitted unless all are.
  std::string text() const;

  /// The same position, for a set given as a mask with one bit per axis, by its index in axes().
  Place place(std::size_t rank, unsigned mask) const;

 private:
  /// The mask of a set of axes.
  unsigned mask(const std::vector<std::string_view>& names) const;

  std::vector<RankAxis> axes_;
};

/// The order of the axes, fastest first. In the expert grid `tp` and `dp` mean `etp` and `edp`. User-defined axes come directly
/// after dp, in the order in which the mesh names them. Domain axes come directly before dp, the last one that the mesh names
/// first, as the ranks of MPI_Cart_create. Axes of degree 1 may be omitted. Throws LayoutError if a name is unknown
/// or occurs twice.
class RankOrder {
 public:
  static constexpr std::string_view standard = "tp-cp-ep-dp-pp";

  RankOrder() : RankOrder(standard) {}
  explicit RankOrder(std::string_view text);

  const std::string& text() const { return text_; }
  bool has(std::string_view name) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (names_[i] == name) return true;
    return false;
  }
  bool pipeline_last() const { return names_[count_ - 1] == "pp"; }

  /// The grid of these sizes, in this order; `sizes` uses the grid's names (etp, edp). An axis that is not in the order comes
  /// last and must have size 1.
  RankGrid grid(const std::vector<RankAxis>& sizes) const;

 private:
  static constexpr std::size_t axes = 5;

  std::string text_;
  std::string_view names_[axes];
  std::size_t count_ = 0;
};

/// The two grids over one world.
struct RankGrids {
  RankGrid dense;   ///< tp, cp, dp, pp
  RankGrid expert;  ///< etp, ep, edp, pp
};

/// Returns `given`, or the rest of the world if `given` is 0. Throws LayoutError, with the whole product, if the world is not
/// divisible or the product is not the world.
std::size_t degree_left(std::string_view name, std::size_t given, std::size_t world, const std::vector<RankAxis>& others);

/// Throws LayoutError unless the pipeline groups of both grids consist of the same ranks.
void require_same_pipelines(const RankOrder& order, const RankGrids& grids);

/// Both grids; dp and edp are inferred if they are 0. Throws LayoutError if the world is not divisible or the pipelines of the
/// two grids differ.
RankGrids rank_grids(const RankOrder& order, std::size_t world, Degrees d);

}  // namespace mesh_layout

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/mesh/rank_order_impl.hpp>
#endif
