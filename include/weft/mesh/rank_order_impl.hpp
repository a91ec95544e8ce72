// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arithmetic of grids, and its messages. Definitions for mesh/rank_order.hpp.

#include <weft/core/inline.hpp>
#include <weft/mesh/rank_order.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::string divisors_text(std::size_t n) {
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

WEFT_COLD WEFT_INLINE std::string number(std::string_view name, std::size_t value) { return joined({name, "(", value, ")"}); }

WEFT_COLD WEFT_INLINE void append_factor(std::string& product, std::string_view name, std::size_t value) {
  append_to(product, {product.empty() ? "" : " * ", name, "(", value, ")"});
}

}  // namespace weft::detail

namespace weft::mesh_layout {

WEFT_INLINE RankGroups RankGrid::groups(const std::vector<std::string_view>& names) const {
  const unsigned inside = mask(names);
  RankGroups groups;
  for (std::size_t rank = 0, ranks = size(); rank < ranks; ++rank) {
    const Place at = place(rank, inside);
    if (groups.empty()) groups.assign(ranks / at.size, std::vector<std::size_t>(at.size));
    groups[at.group][at.member] = rank;
  }
  return groups;
}

WEFT_COLD WEFT_INLINE std::string RankGrid::text() const {
  const bool all = size() == 1;
  std::string text;
  for (const RankAxis& axis : axes_)
    if (all || axis.size != 1) detail::append_factor(text, axis.name, axis.size);
  return text;
}

WEFT_INLINE RankGrid::Place RankGrid::place(std::size_t rank, unsigned mask) const {
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

WEFT_INLINE unsigned RankGrid::mask(const std::vector<std::string_view>& names) const {
  unsigned mask = 0;
  for (const std::string_view name : names) {
    if (!has(name)) throw_error<LayoutError>({"no axis '", name, "' among the axes ", text()});
    for (std::size_t i = 0; i < axes_.size(); ++i) mask |= unsigned(axes_[i].name == name) << i;
  }
  return mask;
}

WEFT_COLD WEFT_INLINE RankOrder::RankOrder(std::string_view text) : text_(text) {
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

WEFT_COLD WEFT_INLINE RankGrid RankOrder::grid(const std::vector<RankAxis>& sizes) const {
  const auto plain = [](std::string_view name) { return name == "etp" ? "tp" : name == "edp" ? "dp" : name; };
  std::vector<RankAxis> axes;
  axes.reserve(sizes.size());
  for (std::size_t i = 0; i < count_; ++i) {
    if (names_[i] == "dp")
      for (std::size_t last = sizes.size(); last-- > 0;)
        if (detail::names_domain_axis(sizes[last].name)) axes.push_back(sizes[last]);
    for (const RankAxis& axis : sizes)
      if (plain(axis.name) == names_[i]) axes.push_back(axis);
    for (const RankAxis& axis : sizes)
      if (axis.user && !detail::names_domain_axis(axis.name) && names_[i] == "dp") axes.push_back(axis);
  }
  for (const RankAxis& axis : sizes) {
    if (has(axis.user ? "dp" : plain(axis.name))) continue;
    if (axis.size != 1)
      throw_error<LayoutError>({"rank order '", text_, "' does not say where ", axis.name, "(", axis.size, ") goes: add '",
                                axis.user ? "dp" : plain(axis.name),
                                axis.user ? "' to it, which domain axes and axes of your own lie beside" : "' to it"});
    axes.push_back(axis);
  }
  return RankGrid(std::move(axes));
}

WEFT_COLD WEFT_INLINE std::size_t degree_left(std::string_view name, std::size_t given, std::size_t world,
                                              const std::vector<RankAxis>& others) {
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
    const std::string why = world % product == 0 ? detail::joined({": ", name, " can be ", world / product})
                                                 : ": their product must divide the world";
    throw_error<LayoutError>({name, "(", given, ")", text.empty() ? "" : " * ", text, " != world(", world, ")", why});
  }
  return given;
}

WEFT_COLD WEFT_INLINE void require_same_pipelines(const RankOrder& order, const RankGrids& grids) {
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
    const RankGrid::Place a = grids.dense.place(rank, pipeline(grids.dense)),
                          b = grids.expert.place(rank, pipeline(grids.expert));
    if (!(a == b))
      throw_error<LayoutError>({"rank order '", order.text(), "' with pp(", pp, "): rank ", rank, " is place ", a.member,
                                " of pipeline ", a.group, " in the dense mesh (", grids.dense.text(), ") and place ", b.member,
                                " of pipeline ", b.group, " in the expert mesh (", grids.expert.text(), "); put pp last"});
  }
}

WEFT_INLINE RankGrids rank_grids(const RankOrder& order, std::size_t world, Degrees d) {
  d.dp = degree_left("dp", d.dp, world, {{"tp", d.tp}, {"pp", d.pp}, {"cp", d.cp}});
  d.edp = degree_left("edp", d.edp, world, {{"etp", d.etp}, {"pp", d.pp}, {"ep", d.ep}});
  RankGrids grids{order.grid({{"tp", d.tp}, {"cp", d.cp}, {"dp", d.dp}, {"pp", d.pp}}),
                  order.grid({{"etp", d.etp}, {"ep", d.ep}, {"edp", d.edp}, {"pp", d.pp}})};
  require_same_pipelines(order, grids);
  return grids;
}

}  // namespace weft::mesh_layout
