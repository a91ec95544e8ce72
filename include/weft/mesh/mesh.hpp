// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mesh: the ranks of a world laid out over axes, with a communicator for each axis. Axes are types, degrees are values:
//
//   Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});           // dp is the rest of the world
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
#include <weft/core/error.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/mesh/rank_order.hpp>
#include <weft/mesh/world.hpp>

namespace weft {

namespace detail {

inline constexpr unsigned dense_axes = axis_bit<tp> | axis_bit<cp> | axis_bit<dp> | user_axes;
inline constexpr unsigned expert_axes = axis_bit<etp> | axis_bit<ep> | axis_bit<edp>;

/// True if one communicator can span these axes. Axes of the dense mesh and of the expert mesh cannot be combined; pp is in both.
constexpr bool in_one_grid(unsigned set) { return (set & dense_axes) == 0 || (set & expert_axes) == 0; }

/// False if a user-defined axis has the name of another axis of the mesh, or of any of weft's axes.
template <class... A>
constexpr bool names_differ() {
  const std::string_view names[] = {dp::name,  cp::name, tp::name, pp::name, ep::name,  etp::name,
                                    edp::name, dx::name, dy::name, dz::name, A::name...};
  const int ids[] = {dp::id, cp::id, tp::id, pp::id, ep::id, etp::id, edp::id, dx::id, dy::id, dz::id, A::id...};
  for (std::size_t i = 0; i < std::size(ids); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (names[i] == names[j] && ids[i] != ids[j]) return false;
  return true;
}

/// The part of a Mesh that does not depend on its axis types, which are values here. Compiled once.
class MeshState {
 public:
  struct Line {
    unsigned bit;
    std::string_view name;
  };

  MeshState(World& world, const std::vector<Line>& lines, const Degrees& degrees, const mesh_layout::RankOrder& order);

  World& world() const { return *world_; }
  const mesh_layout::RankOrder& order() const { return order_; }
  unsigned axes() const { return set_; }

  mesh_layout::RankGrid::Place place(unsigned set) const;
  /// The grids of only these axes.
  mesh_layout::RankGrids grids(unsigned set) const;

  /// The communicator of a set of axes. The first call creates and stores it, and is collective over the world.
  const Communicator& comm(unsigned set);

  std::string text(unsigned set) const;

 private:
  // A list, because references to communicators must stay valid.
  struct Made {
    unsigned set;
    Communicator communicator;
    std::unique_ptr<Made> next;
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

  /// The grid of one mesh. Axes that are not in the type have one rank and are omitted in messages.
  mesh_layout::RankGrid grid(std::string_view rest, std::size_t rest_given, const std::vector<mesh_layout::RankAxis>& others,
                             std::size_t ranks) const;

  const mesh_layout::RankGrid& grid_of(unsigned set) const {
    const bool expert = (set & expert_axes) != 0 || grids_.dense.axes().empty();
    return expert ? grids_.expert : grids_.dense;
  }

  std::string names_of(unsigned set) const;

  /// Notes the ranks along these axes in a rehearsal.
  void note(unsigned set, const std::string& name, const mesh_layout::RankGrid::Place& at) const;

  World* world_;
  mesh_layout::RankOrder order_;
  std::vector<Line> lines_;
  unsigned set_ = 0;
  mesh_layout::RankGrids grids_;
  std::unique_ptr<Made> made_;
};

}  // namespace detail

/// A mesh over a world. Ranks are numbered in the rank order, by default Megatron-LM's "tp-cp-ep-dp-pp", the first axis fastest.
/// Axes that are not named have one rank; dp (edp of the expert axes) is the rest of the world unless it is given. A value:
/// copies share their communicators. All ranks of the world must construct it with the same arguments. It is valid as long as the
/// world. Throws LayoutError, with the same text on every rank and before any communication, if the product of the degrees is not
/// the size of the world.
template <detail::Axis... A>
class Mesh {
  static constexpr unsigned set = (axis_bit<A> | ... | 0u);
  template <class... B>
  static constexpr bool holds = ((axis_bit<B> | ... | 0u) & ~set) == 0;

 public:
  using axes_type = Axes<A...>;

  explicit Mesh(World& world, Degrees degrees = {}, const mesh_layout::RankOrder& order = mesh_layout::RankOrder())
      : state_(std::make_shared<detail::MeshState>(world, std::vector<detail::MeshState::Line>{{axis_bit<A>, A::name}...},
                                                   degrees, order)) {}
  Mesh(World& world, Axes<A...>, Degrees degrees = {}, const mesh_layout::RankOrder& order = mesh_layout::RankOrder())
      : Mesh(world, degrees, order) {}

  /// True if all of these axes are in the mesh and in the same one of its two grids (dense or expert).
  template <detail::Axis... B>
  static constexpr bool has(B...) {
    return holds<B...> && detail::in_one_grid((axis_bit<B> | ... | 0u));
  }

  /// The ranks that differ from this one only along these axes, the first axis of the rank order fastest, independent of the
  /// order of the arguments. The communicator of one axis exists from the start. That of several axes is created at the first
  /// call, which all ranks must make with the same axes.
  template <detail::Axis... B>
  requires(sizeof...(B) > 0 && Mesh::has(B{}...)) const Communicator& comm(B...) const {
    return state_->comm((axis_bit<B> | ...));
  }
  /// The error overload: the mesh has no such axis (name it in axes<...>), or a dense axis was combined with an axis of the
  /// expert mesh.
  template <detail::Axis... B>
  requires(sizeof...(B) > 0 && !Mesh::has(B{}...)) const Communicator& comm(B... this_mesh_has_no_such_axis) const = delete;

  /// The number of ranks along these axes together.
  template <detail::Axis... B>
  requires(Mesh::has(B{}...)) int size(B...) const { return int(state_->place((axis_bit<B> | ... | 0u)).size); }
  /// This rank's number along these axes.
  template <detail::Axis... B>
  requires(Mesh::has(B{}...)) int rank(B...) const { return int(state_->place((axis_bit<B> | ... | 0u)).member); }

  /// A mesh of some of the axes: the ranks that differ from this one only along them. It shares the communicators.
  template <detail::Axis... B>
  requires(holds<B...>) auto sub(Axes<B...>) const -> Mesh<B...> { return Mesh<B...>(state_); }
  template <detail::Axis... B>
  requires(holds<B...>) auto operator[](Axes<B...>) const -> Mesh<B...> { return Mesh<B...>(state_); }

  /// All ranks of the mesh; for a sub-mesh, its own ranks. The first call is collective.
  const Communicator& communicator() const {
    if (set == state_->axes()) return state_->world().communicator();
    return state_->comm(detail::in_one_grid(set) ? set : set & ~detail::expert_axes);
  }
  /// The order of communicator()'s ranks along the axes of the mesh.
  mesh_layout::RankGrids grids() const { return state_->grids(set); }
  World& world() const { return state_->world(); }
  const mesh_layout::RankOrder& order() const { return state_->order(); }
  /// "tp(2) * dp(2) * pp(2)", in rank order, followed by the axes of the expert mesh.
  std::string text() const { return state_->text(set); }

 private:
  template <detail::Axis...>
  friend class Mesh;
  explicit Mesh(std::shared_ptr<detail::MeshState> state) : state_(std::move(state)) {}

  std::shared_ptr<detail::MeshState> state_;

  // At the end: a compiler stops at the first failing assertion, and everything that it has not parsed by then is a second error.
  static_assert(((A::id >= 0 && A::id < 32) && ...),
                "weft: Mesh's A template parameters are the axes of weft/mesh/axis.hpp, or axes of your own, derived from "
                "UserAxis or UserDataAxis");
  static_assert(std::popcount(set) == int(sizeof...(A)),
                "weft: a Mesh names each axis once, and axes of your own have different numbers: UserAxis<0>, UserDataAxis<1>");
  static_assert(detail::names_differ<A...>(), "weft: an axis of your own has the name of another axis: give it another name");
};

template <detail::Axis... A>
Mesh(World&, Axes<A...>) -> Mesh<A...>;
template <detail::Axis... A>
Mesh(World&, Axes<A...>, Degrees) -> Mesh<A...>;
template <detail::Axis... A>
Mesh(World&, Axes<A...>, Degrees, const mesh_layout::RankOrder&) -> Mesh<A...>;

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/mesh/mesh_impl.hpp>
#endif
