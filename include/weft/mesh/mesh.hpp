// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of a world laid out over axes, with a communicator for each axis. Axes are types, degrees are values:
//
//   Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});           // dp is what is left of the world
//   mesh.comm(tp{}).all_reduce(x);
//   mesh.comm(dp{}, cp{});                                      // one communicator over both axes
//   Mesh<dp, tp, pp, ep, edp> both(world, {.tp = 2, .ep = 4});  // a dense and an expert mesh over the same ranks

#include <bit>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/checked.hpp>
#include <weft/core/error.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/mesh/rank_order.hpp>
#include <weft/mesh/world.hpp>

namespace weft {

namespace detail {

inline constexpr unsigned dense_axes = axis_bit<tp> | axis_bit<cp> | axis_bit<dp> | user_axes;
inline constexpr unsigned expert_axes = axis_bit<etp> | axis_bit<ep> | axis_bit<edp>;

/// Axes of the dense mesh and axes of the expert mesh have no common communicator; pp is in both.
constexpr bool in_one_grid(unsigned set) { return (set & dense_axes) == 0 || (set & expert_axes) == 0; }

/// Whether no axis of a user's own has the name of another axis: one of weft's, in the mesh or not, or one of these.
template <class... A>
constexpr bool names_differ() {
  const std::string_view names[] = {dp::name, cp::name, tp::name, pp::name, ep::name, etp::name, edp::name, A::name...};
  const int ids[] = {dp::id, cp::id, tp::id, pp::id, ep::id, etp::id, edp::id, A::id...};
  for (std::size_t i = 0; i < std::size(ids); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (names[i] == names[j] && ids[i] != ids[j]) return false;
  return true;
}

/// The types of Mesh's axes as values, and all that does not depend on them: compiled once.
class MeshState {
 public:
  struct Line {
    unsigned bit;
    std::string_view name;
  };

  WEFT_COLD MeshState(World& world, const List<Line>& lines, const Degrees& degrees, const mesh_layout::RankOrder& order)
      : world_(&world), order_(order), lines_(lines) {
    for (const Line& line : lines) set_ |= line.bit;
    const std::size_t ranks = narrow<std::size_t>(world.size(), "the world");
    const std::string_view names[] = {"tp", "cp", "ep", "etp", "dp", "edp", "pp"};
    const std::size_t given[] = {degrees.tp, degrees.cp, degrees.ep, degrees.etp, degrees.dp, degrees.edp, degrees.pp};
    const unsigned bits[] = {axis_bit<tp>, axis_bit<cp>, axis_bit<ep>, axis_bit<etp>, axis_bit<dp>, axis_bit<edp>, axis_bit<pp>};
    for (std::size_t i = 0; i < 7; ++i)
      if (given[i] > 1 && (set_ & bits[i]) == 0)
        refuse_degree(names[i], given[i]);
    std::vector<mesh_layout::RankAxis> sizes{{"tp", degrees.tp}, {"cp", degrees.cp}, {"pp", degrees.pp}};
    for (const UserDegree& user : degrees.user)
      if (user.degree > 1 && (set_ & user.bit) == 0) refuse_degree(user.name, user.degree);
    for (const Line& line : lines)
      if (line.bit & user_axes) sizes.push_back({line.name, degree_of(line, degrees.user), true});
    const bool expert = (set_ & expert_axes) != 0, dense = (set_ & dense_axes) != 0 || !expert;
    if (dense) grids_.dense = grid("dp", degrees.dp, sizes, ranks);
    if (expert) grids_.expert = grid("edp", degrees.edp, {{"etp", degrees.etp}, {"ep", degrees.ep}, {"pp", degrees.pp}}, ranks);
    if (dense && expert) mesh_layout::require_same_pipelines(order_, grids_);
    for (const Line& line : lines_) comm(line.bit);  // from here on ranks communicate
  }

  World& world() const { return *world_; }
  const mesh_layout::RankOrder& order() const { return order_; }
  unsigned axes() const { return set_; }

  WEFT_COLD mesh_layout::RankGrid::Place place(unsigned set) const {
    const mesh_layout::RankGrid& grid = grid_of(set);
    unsigned mask = 0;
    for (std::size_t i = 0; i < grid.axes().size(); ++i) mask |= unsigned((bit(grid.axes()[i].name) & set) != 0) << i;
    for (const Line& line : lines_)
      if ((line.bit & set) != 0 && !grid.has(line.name))
        throw_error<LayoutError>({"no axis '", line.name, "' among the axes ", grid.text()});
    return grid.place(static_cast<std::size_t>(world_->rank()), mask);
  }

  /// Made at the first call, which is collective over the world, and kept.
  WEFT_COLD const Communicator& comm(unsigned set) {
    for (const Made* made = made_.get(); made != nullptr; made = made->next.get())
      if (made->set == set) return made->communicator;
    const mesh_layout::RankGrid::Place at = place(set);
    std::string name = names_of(set);
    Communicator made = at.size == 1 ? Communicator(new_shared<comm::SelfGroup>(std::move(name), world_->backend()), world_->communicator().order())
                                     : world_->communicator().split(narrow<int>(at.group, "a group's number"),
                                                                    narrow<int>(at.member, "a rank"), std::move(name));
    made_.reset(new Made{set, std::move(made), std::move(made_)});
    return made_->communicator;
  }

  WEFT_COLD std::string text(unsigned set) const {
    std::string text;
    for (const mesh_layout::RankGrid* grid : {&grids_.dense, &grids_.expert})
      for (const mesh_layout::RankAxis& axis : grid->axes())
        if (bit(axis.name) & set) {
          set &= ~bit(axis.name);
          append_factor(text, axis.name, axis.size);
        }
    return text;
  }

 private:
  // A list, since references to communicators stay valid.
  struct Made {
    unsigned set;
    Communicator communicator;
    Owner<Made> next;
  };

  [[noreturn]] void refuse_degree(std::string_view name, std::size_t given) const {
    throw_error<LayoutError>({name, "(", given, "): this mesh has no axis ", name, ", its axes are ", names_of(set_)});
  }
  static std::size_t degree_of(const Line& line, const std::vector<UserDegree>& user) {
    for (const UserDegree& given : user)
      if (given.bit == line.bit) return given.degree;
    return 1;
  }
  unsigned bit(std::string_view name) const {
    for (const Line& line : lines_)
      if (line.name == name) return line.bit;
    return 0;
  }

  /// The grid of one mesh; an axis that is not in the type has one rank and is not spoken of.
  WEFT_COLD mesh_layout::RankGrid grid(std::string_view rest, std::size_t rest_given, const std::vector<mesh_layout::RankAxis>& others, std::size_t ranks) const {
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
        throw_error<LayoutError>({text.empty() ? "1" : text, " != world(", ranks, "): this mesh has no axis ", rest,
                                  " to take what is left"});
      all.push_back({rest, 1});
    }
    return order_.grid(all);
  }

  const mesh_layout::RankGrid& grid_of(unsigned set) const {
    const bool expert = (set & expert_axes) != 0 || grids_.dense.axes().empty();
    return expert ? grids_.expert : grids_.dense;
  }

  WEFT_COLD std::string names_of(unsigned set) const {
    std::string text;
    for (const Line& line : lines_)
      if (line.bit & set) append_to(text, {text.empty() ? "" : "-", line.name});
    return text.empty() ? "none" : text;
  }

  World* world_;
  mesh_layout::RankOrder order_;
  List<Line> lines_;
  unsigned set_ = 0;
  mesh_layout::RankGrids grids_;
  Owner<Made> made_;
};

}  // namespace detail

/// A mesh over a world. Ranks are numbered in the rank order, by default Megatron-LM's "tp-cp-ep-dp-pp", the first axis
/// fastest. Axes that are not named have one rank; dp (and edp of the expert axes) is what the others leave of the world
/// unless it is given. A value: copies share their communicators. To be made by all ranks of the world alike; valid as long
/// as the world.
/// Throws LayoutError, the same on every rank and before any communication, if the product is not the world.
template <detail::Axis... A>
class Mesh {
  static constexpr unsigned set = (axis_bit<A> | ... | 0u);

 public:
  using axes_type = Axes<A...>;

  explicit Mesh(World& world, Degrees degrees = {}, const mesh_layout::RankOrder& order = mesh_layout::RankOrder())
      : state_(detail::new_shared<detail::MeshState>(world, detail::List<detail::MeshState::Line>{{axis_bit<A>, A::name}...}, degrees, order)) {}
  Mesh(World& world, Axes<A...>, Degrees degrees = {}, const mesh_layout::RankOrder& order = mesh_layout::RankOrder()) : Mesh(world, degrees, order) {}

  /// Whether all of these axes are in the mesh, and in one of its two grids (dense or expert).
  template <detail::Axis... B>
  static constexpr bool has(B...) {
    return ((axis_bit<B> | ... | 0u) & ~set) == 0 && detail::in_one_grid((axis_bit<B> | ... | 0u));
  }

  /// The ranks that differ from this one only along these axes, the first axis of the rank order fastest, whatever the order
  /// of the arguments. For one axis made with the mesh; for several at the first call, which all ranks must make alike.
  template <detail::Axis... B>
  requires(sizeof...(B) > 0 && Mesh::has(B{}...)) const Communicator& comm(B...) const {
    return state_->comm((axis_bit<B> | ...));
  }
  /// The mesh has no such axis (name it in axes<...>), or a dense axis was joined with one of the expert mesh.
  template <detail::Axis... B>
  requires(sizeof...(B) > 0 && !Mesh::has(B{}...)) const Communicator& comm(B... this_mesh_has_no_such_axis) const = delete;

  /// Ranks along these axes together.
  template <detail::Axis... B>
  requires(Mesh::has(B{}...)) int size(B...) const { return int(state_->place((axis_bit<B> | ... | 0u)).size); }
  /// This rank's place along these axes.
  template <detail::Axis... B>
  requires(Mesh::has(B{}...)) int rank(B...) const { return int(state_->place((axis_bit<B> | ... | 0u)).member); }

  /// The mesh of some of the axes: the ranks that differ from this one only along them. It shares the communicators.
  template <detail::Axis... B>
  requires(((axis_bit<B> | ... | 0u) & ~set) == 0) Mesh<B...> sub(Axes<B...>)
  const { return Mesh<B...>(state_); }
  template <detail::Axis... B>
  requires(((axis_bit<B> | ... | 0u) & ~set) == 0) Mesh<B...>
  operator[](Axes<B...>) const { return Mesh<B...>(state_); }

  /// All ranks of the mesh; of a sub-mesh those that it spans. Collective at the first call.
  const Communicator& communicator() const {
    if (set == state_->axes()) return state_->world().communicator();
    return state_->comm(detail::in_one_grid(set) ? set : set & ~detail::expert_axes);
  }
  World& world() const { return state_->world(); }
  const mesh_layout::RankOrder& order() const { return state_->order(); }
  /// "tp(2) * dp(2) * pp(2)", in rank order; axes of the expert mesh come after.
  std::string text() const { return state_->text(set); }

 private:
  template <detail::Axis...>
  friend class Mesh;
  explicit Mesh(std::shared_ptr<detail::MeshState> state) : state_(std::move(state)) {}

  std::shared_ptr<detail::MeshState> state_;

  // At the end: a compiler stops at the first one that fails, and what it has not seen by then is a second error.
  static_assert(((A::id >= 0 && A::id < 32) && ...),
                "weft: Mesh's A template parameters are the axes of weft/mesh/axis.hpp, or axes of your own, derived from UserAxis or UserDataAxis");
  static_assert(std::popcount(set) == int(sizeof...(A)),
                "weft: a Mesh names each axis once, and axes of your own have different numbers: UserAxis<0>, UserDataAxis<1>");
  static_assert(detail::names_differ<A...>(), "weft: an axis of your own has the name of another axis: give it a name of its own");
};

template <detail::Axis... A>
Mesh(World&, Axes<A...>) -> Mesh<A...>;
template <detail::Axis... A>
Mesh(World&, Axes<A...>, Degrees) -> Mesh<A...>;
template <detail::Axis... A>
Mesh(World&, Axes<A...>, Degrees, const mesh_layout::RankOrder&) -> Mesh<A...>;

}  // namespace weft
