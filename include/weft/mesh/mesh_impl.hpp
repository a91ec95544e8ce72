// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicators and grids of a mesh. Definitions for mesh/mesh.hpp.

#include <algorithm>

#include <weft/comm/agree.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/proof.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/mesh/mesh.hpp>

namespace weft::detail {

/// The layout in which a proof or a search runs the program, for meshes of all ranks; null: neither runs.
WEFT_COLD WEFT_INLINE const ProofLayout* given_layout(const World& world) {
  const Proof* const proof = world.device().proof();
  const Rehearsal* const notes = world.device().rehearsal();
  const ProofLayout* const layout = proof != nullptr ? &proof->layout() : notes != nullptr ? notes->layout : nullptr;
  return layout != nullptr && layout->ranks == world.size() ? layout : nullptr;
}

WEFT_COLD WEFT_INLINE Degrees degrees_of(const ProofLayout& layout, const std::vector<MeshState::Line>& lines) {
  Degrees degrees{.tp = layout.degree("tp"),
                  .cp = layout.degree("cp"),
                  .ep = layout.degree("ep"),
                  .etp = layout.degree("etp"),
                  .pp = layout.degree("pp")};
  for (const MeshState::Line& line : lines)
    if ((line.bit & user_axes) != 0) degrees.user.emplace_back(line.bit, line.name, layout.degree(line.name));
  return degrees;
}

WEFT_COLD WEFT_INLINE MeshState::MeshState(World& world, const std::vector<Line>& lines, const Degrees& given_degrees,
                                           const mesh_layout::RankOrder& order)
    : world_(&world), order_(order), lines_(lines) {
  const ProofLayout* const chosen = given_layout(world);
  const Degrees degrees = chosen != nullptr ? degrees_of(*chosen, lines) : given_degrees;
  if (Proof* const proof = world.device().proof(); proof != nullptr && chosen != nullptr)
    for (const Line& line : lines) proof->note_axis(line.name, (line.bit & expert_axes) != 0);
  const comm::InFunction mark(world.communicator(), comm::ProgramFunction::mesh);
  for (const Line& line : lines) set_ |= line.bit;
  const std::size_t ranks = narrow<std::size_t>(world.size(), "the world");
  const std::string_view names[] = {"tp", "cp", "ep", "etp", "dp", "edp", "pp"};
  const std::size_t given[] = {degrees.tp, degrees.cp, degrees.ep, degrees.etp, degrees.dp, degrees.edp, degrees.pp};
  const unsigned bits[] = {axis_bit<tp>, axis_bit<cp>, axis_bit<ep>, axis_bit<etp>, axis_bit<dp>, axis_bit<edp>, axis_bit<pp>};
  for (std::size_t i = 0; i < 7; ++i)
    if (given[i] > 1 && (set_ & bits[i]) == 0) refuse_degree(names[i], given[i]);
  std::vector<mesh_layout::RankAxis> sizes{{"tp", degrees.tp}, {"cp", degrees.cp}, {"pp", degrees.pp}};
  std::vector<UserDegree> others = degrees.user;
  for (const UserDegree& domain : {UserDegree(axis_bit<dx>, dx::name, degrees.dx), UserDegree(axis_bit<dy>, dy::name, degrees.dy),
                                   UserDegree(axis_bit<dz>, dz::name, degrees.dz)})
    if (domain.degree != 1) others.push_back(domain);
  for (const UserDegree& user : others)
    if (user.degree > 1 && (set_ & user.bit) == 0) refuse_degree(user.name, user.degree);
  for (const Line& line : lines)
    if (line.bit & user_axes) sizes.push_back({line.name, degree_of(line, others), true});
  const bool expert = (set_ & expert_axes) != 0, dense = (set_ & dense_axes) != 0 || !expert;
  if (dense) grids_.dense = grid("dp", degrees.dp, sizes, ranks);
  if (expert) grids_.expert = grid("edp", degrees.edp, {{"etp", degrees.etp}, {"ep", degrees.ep}, {"pp", degrees.pp}}, ranks);
  if (dense && expert) mesh_layout::require_same_pipelines(order_, grids_);
  std::string axes = "axes " + names_of(set_);
  for (std::size_t i = 0; i < 7; ++i)
    if (given[i] > 1) append_to(axes, {", ", names[i], "(", given[i], ")"});
  for (const UserDegree& user : others) append_to(axes, {", ", user.name, "(", user.degree, ")"});
  agree(world.communicator(), {{"the mesh", axes}, {"the order of ranks", order_.text()}});  // the first communication
  for (const Line& line : lines_) comm(line.bit);
}

WEFT_COLD WEFT_INLINE mesh_layout::RankGrid::Place MeshState::place(unsigned set) const {
  const mesh_layout::RankGrid& grid = grid_of(set);
  unsigned mask = 0;
  for (std::size_t i = 0; i < grid.axes().size(); ++i) mask |= unsigned((bit(grid.axes()[i].name) & set) != 0) << i;
  for (const Line& line : lines_)
    if ((line.bit & set) != 0 && !grid.has(line.name))
      throw_error<LayoutError>({"no axis '", line.name, "' among the axes ", grid.text()});
  return grid.place(static_cast<std::size_t>(world_->rank()), mask);
}

WEFT_COLD WEFT_INLINE mesh_layout::RankGrids MeshState::grids(unsigned set) const {
  const auto part = [&](const mesh_layout::RankGrid& grid) {
    std::vector<mesh_layout::RankAxis> axes;
    for (const mesh_layout::RankAxis& axis : grid.axes())
      if (bit(axis.name) & set) axes.push_back(axis);
    return mesh_layout::RankGrid(std::move(axes));
  };
  return {part(grids_.dense), part(grids_.expert)};
}

WEFT_COLD WEFT_INLINE const Communicator& MeshState::comm(unsigned set) {
  for (const Made* made = made_.get(); made != nullptr; made = made->next.get())
    if (made->set == set) return made->communicator;
  const mesh_layout::RankGrid::Place at = place(set);
  std::string name = names_of(set);
  if (world_->communicator().rehearsed()) note(set, name, at);
  Communicator made =
      at.size == 1
          ? Communicator(std::make_shared<comm::SelfGroup>(std::move(name), world_->backend()), world_->communicator().order())
          : world_->communicator().split(narrow<int>(at.group, "a group's number"), narrow<int>(at.member, "a rank"),
                                         std::move(name), {int(at.member), int(at.size)});
  made_.reset(new Made{set, std::move(made), std::move(made_)});
  return made_->communicator;
}

WEFT_COLD WEFT_INLINE void MeshState::note(unsigned set, const std::string& name, const mesh_layout::RankGrid::Place& at) const {
  Rehearsal* const notes = world_->device().rehearsal();
  if (notes == nullptr || world_->size() != notes->ranks) return;
  Rehearsal::Axis axis{name, at.size, at.member, {}};
  std::size_t stride = 1;
  for (const mesh_layout::RankAxis& line : grid_of(set).axes()) {
    if ((bit(line.name) & set) != 0 && line.size > 1) axis.lines.push_back({line.size, stride});
    stride *= line.size;
  }
  if (std::find(notes->axes.begin(), notes->axes.end(), axis) == notes->axes.end()) notes->axes.push_back(std::move(axis));
}

WEFT_COLD WEFT_INLINE std::string MeshState::text(unsigned set) const {
  std::string text;
  for (const mesh_layout::RankGrid* grid : {&grids_.dense, &grids_.expert})
    for (const mesh_layout::RankAxis& axis : grid->axes())
      if (bit(axis.name) & set) {
        set &= ~bit(axis.name);
        append_factor(text, axis.name, axis.size);
      }
  return text;
}

WEFT_COLD WEFT_INLINE mesh_layout::RankGrid MeshState::grid(std::string_view rest, std::size_t rest_given,
                                                            const std::vector<mesh_layout::RankAxis>& others,
                                                            std::size_t ranks) const {
  std::vector<mesh_layout::RankAxis> mine, all;
  all.reserve(others.size() + 1);
  mine.reserve(others.size());
  for (const mesh_layout::RankAxis& axis : others) {
    if (bit(axis.name) != 0) mine.push_back(axis);
    all.push_back({axis.name, bit(axis.name) != 0 ? axis.size : 1, axis.user});
  }
  if (bit(rest) != 0) {
    all.push_back({rest, mesh_layout::degree_left(rest, rest_given, ranks, mine)});
  } else {
    std::size_t product = 1;
    std::string text;
    for (const mesh_layout::RankAxis& axis : mine) {
      if (axis.size == 0) throw_error<LayoutError>({axis.name, "(0): a degree is at least 1"});
      product = saturating_product({product, axis.size});
      append_factor(text, axis.name, axis.size);
    }
    if (product != ranks)
      throw_error<LayoutError>(
          {text.empty() ? "1" : text, " != world(", ranks, "): this mesh has no axis ", rest, " to take what is left"});
    all.push_back({rest, 1});
  }
  return order_.grid(all);
}

WEFT_COLD WEFT_INLINE std::string MeshState::names_of(unsigned set) const {
  std::string text;
  for (const Line& line : lines_)
    if (line.bit & set) append_to(text, {text.empty() ? "" : "-", line.name});
  return text.empty() ? "none" : text;
}

}  // namespace weft::detail
