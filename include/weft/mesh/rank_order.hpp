// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of ranks along each axis: pure arithmetic on an order string such as "tp-cp-ep-dp-pp" (fastest axis first) and the
// degrees. Two grids lie on the same ranks, dense (tp, cp, dp, pp) and expert (etp, ep, edp, pp), so that experts can be
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
WEFT_COLD inline std::string divisors_text(std::size_t n) {
  std::vector<std::size_t> divisors;
  for (std::size_t d = 1; d <= n / d && d < 1'000'000; ++d)
    if (n % d == 0) divisors.push_back(d);
  for (std::size_t i = divisors.size(); i-- > 0;)
    if (n / divisors[i] != divisors[i]) divisors.push_back(n / divisors[i]);
  constexpr std::size_t most = 12, left_out_after = 9;
  std::string text;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    append_to(text, {i == 0 ? "" : i + 1 == divisors.size() ? " or " : ", ", divisors[i]});
    if (divisors.size() > most && i + 1 == left_out_after) {
      text += ", ...";
      i = divisors.size() - 3;
    }
  }
  return text;
}

WEFT_COLD inline std::string number(std::string_view name, std::size_t value) { return joined({name, "(", value, ")"}); }

/// Appends a factor to a product in words: "tp(2) * pp(4)".
WEFT_COLD inline void append_factor(std::string& product, std::string_view name, std::size_t value) {
  append_to(product, {product.empty() ? "" : " * ", name, "(", value, ")"});
}

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
  /// order fastest; the order of the names does not matter.
  struct Place {
    std::size_t group, member, size;

    friend bool operator==(const Place&, const Place&) = default;
  };
  Place place(std::size_t rank, const std::vector<std::string_view>& names) const { return place(rank, mask(names)); }

  /// All groups of a set of axes: `groups({"dp", "cp"})`. They partition the ranks.
  RankGroups groups(const std::vector<std::string_view>& names) const {
    const unsigned inside = mask(names);
    RankGroups groups;
    for (std::size_t rank = 0, ranks = size(); rank < ranks; ++rank) {
      const Place at = place(rank, inside);
      if (groups.empty()) groups.assign(ranks / at.size, std::vector<std::size_t>(at.size));
      groups[at.group][at.member] = rank;
    }
    return groups;
  }

  /// "tp(2) * pp(4)"; axes of size 1 are left out unless all are.
  WEFT_COLD std::string text() const {
    const bool all = size() == 1;
    std::string text;
    for (const RankAxis& axis : axes_)
      if (all || axis.size != 1) detail::append_factor(text, axis.name, axis.size);
    return text;
  }

  /// The same position, for a set given as a mask with one bit for each axis, by its index in axes().
  Place place(std::size_t rank, unsigned mask) const {
    Place place{0, 0, 1};
    std::size_t groups = 1;
    for (const RankAxis& axis : axes_) {
      const std::size_t coordinate = rank % axis.size;
      rank /= axis.size;
      const bool inside = (mask & 1u) != 0;
      mask >>= 1;
      (inside ? place.member : place.group) += coordinate * (inside ? place.size : groups);
      (inside ? place.size : groups) *= axis.size;
    }
    return place;
  }

 private:
  /// The mask of a set of axes.
  unsigned mask(const std::vector<std::string_view>& names) const {
    unsigned mask = 0;
    for (const std::string_view name : names) {
      if (!has(name)) throw_error<LayoutError>({"no axis '", name, "' among the axes ", text()});
      for (std::size_t i = 0; i < axes_.size(); ++i) mask |= unsigned(axes_[i].name == name) << i;
    }
    return mask;
  }

  std::vector<RankAxis> axes_;
};

/// The order of the axes, fastest first. `tp` and `dp` stand for `etp` and `edp` in the expert grid. User-defined axes come right
/// after dp, in the order in which the mesh names them. An axis of degree 1 may be left out. Throws LayoutError if a name is
/// unknown or occurs twice.
class RankOrder {
 public:
  static constexpr std::string_view standard = "tp-cp-ep-dp-pp";

  RankOrder() : RankOrder(standard) {}
  WEFT_COLD explicit RankOrder(std::string_view text) : text_(text) {
    constexpr std::string_view known[] = {"tp", "cp", "ep", "dp", "pp"};
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t dash = std::min(text.find('-', at), text.size());
      const std::string_view name = text.substr(at, dash - at);
      at = dash + 1;
      std::size_t found = 0;
      while (found < axes && known[found] != name) ++found;
      if (found == axes)
        throw_error<LayoutError>({"rank order '", text, "': unknown axis '", name, "'; the axes are tp, cp, ep, dp and pp"});
      if (has(name)) throw_error<LayoutError>({"rank order '", text, "': axis '", name, "' comes twice"});
      names_[count_++] = known[found];
    }
  }

  const std::string& text() const { return text_; }
  bool has(std::string_view name) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (names_[i] == name) return true;
    return false;
  }
  bool pipeline_last() const { return names_[count_ - 1] == "pp"; }

  /// The grid of these sizes, in this order; `sizes` uses the grid's names (etp, edp). An axis that the order leaves out goes
  /// last and must have size 1.
  WEFT_COLD RankGrid grid(const std::vector<RankAxis>& sizes) const {
    const auto plain = [](std::string_view name) { return name == "etp" ? "tp" : name == "edp" ? "dp" : name; };
    std::vector<RankAxis> axes;
    axes.reserve(sizes.size());
    for (std::size_t i = 0; i < count_; ++i) {
      for (const RankAxis& axis : sizes)
        if (plain(axis.name) == names_[i]) axes.push_back(axis);
      for (const RankAxis& axis : sizes)
        if (axis.user && names_[i] == "dp") axes.push_back(axis);
    }
    for (const RankAxis& axis : sizes) {
      if (has(axis.user ? "dp" : plain(axis.name))) continue;
      if (axis.size != 1)
        throw_error<LayoutError>({"rank order '", text_, "' does not say where ", axis.name, "(", axis.size, ") goes: add '",
                                  axis.user ? "dp" : plain(axis.name), axis.user ? "' to it, which axes of your own come after" : "' to it"});
      axes.push_back(axis);
    }
    return RankGrid(std::move(axes));
  }

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

/// `given`, or the rest of the world if `given` is 0. Throws LayoutError, with the whole product, if the world is not divisible
/// or the product is not the world.
WEFT_COLD inline std::size_t degree_left(std::string_view name, std::size_t given, std::size_t world, const std::vector<RankAxis>& others) {
  std::size_t product = 1;
  std::string text, names;
  for (const RankAxis& axis : others) {
    if (axis.size == 0) throw_error<LayoutError>({axis.name, "(0): a degree is at least 1"});
    product = detail::saturating_product({product, axis.size});
    detail::append_factor(text, axis.name, axis.size);
    detail::append_to(names, {names.empty() ? "" : " * ", axis.name});
  }
  if (world == 0) throw_error<LayoutError>({"world(0): there is no rank"});
  if (given == 0) {
    if (world % product != 0)
      throw_error<LayoutError>({"world(", world, ") % (", text, ") != 0: ", name, " is what they leave of the world; ", names,
                                " can be ", detail::divisors_text(world)});
    return world / product;
  }
  if (detail::saturating_product({given, product}) != world) {
    const std::string why = world % product == 0 ? detail::joined({": ", name, " can be ", world / product}) : ": their product must divide the world";
    throw_error<LayoutError>({name, "(", given, ")", text.empty() ? "" : " * ", text, " != world(", world, ")", why});
  }
  return given;
}

/// Throws LayoutError unless the pipeline groups of both grids are the same ranks.
WEFT_COLD inline void require_same_pipelines(const RankOrder& order, const RankGrids& grids) {
  const auto size = [](const RankGrid& grid, std::string_view name) {
    for (const RankAxis& axis : grid.axes())
      if (axis.name == name) return axis.size;
    return std::size_t(1);
  };
  const std::size_t dp = size(grids.dense, "dp"), edp = size(grids.expert, "edp"), pp = size(grids.dense, "pp");
  if (pp == 1) return;
  if (!order.pipeline_last() && dp != edp)
    throw_error<LayoutError>({"rank order '", order.text(), "' with pp(", pp, "): dp(", dp, ") != edp(", edp,
                              "): pipelines of the dense and the expert mesh differ unless pp is last or dp = edp"});
  const auto pipeline = [](const RankGrid& grid) {
    unsigned mask = 0;
    for (std::size_t i = 0; i < grid.axes().size(); ++i) mask |= unsigned(grid.axes()[i].name == "pp") << i;
    return mask;
  };
  for (std::size_t rank = 0, ranks = order.pipeline_last() ? 0 : grids.dense.size(); rank < ranks; ++rank) {
    const RankGrid::Place a = grids.dense.place(rank, pipeline(grids.dense)), b = grids.expert.place(rank, pipeline(grids.expert));
    if (!(a == b))
      throw_error<LayoutError>({"rank order '", order.text(), "' with pp(", pp, "): rank ", rank, " is place ", a.member,
                                " of pipeline ", a.group, " in the dense mesh (", grids.dense.text(), ") and place ", b.member,
                                " of pipeline ", b.group, " in the expert mesh (", grids.expert.text(), "); put pp last"});
  }
}

/// Both grids; dp and edp are inferred if they are 0. Throws LayoutError if the world is not divisible or the pipelines of the
/// two grids differ.
inline RankGrids rank_grids(const RankOrder& order, std::size_t world, Degrees d) {
  d.dp = degree_left("dp", d.dp, world, {{"tp", d.tp}, {"pp", d.pp}, {"cp", d.cp}});
  d.edp = degree_left("edp", d.edp, world, {{"etp", d.etp}, {"pp", d.pp}, {"ep", d.ep}});
  RankGrids grids{order.grid({{"tp", d.tp}, {"cp", d.cp}, {"dp", d.dp}, {"pp", d.pp}}),
                  order.grid({{"etp", d.etp}, {"ep", d.ep}, {"edp", d.edp}, {"pp", d.pp}})};
  require_same_pipelines(order, grids);
  return grids;
}

}  // namespace mesh_layout

}  // namespace weft
