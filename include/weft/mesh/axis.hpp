// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a mesh. An axis is an empty type that is passed as a value, so callers never write `.template`. weft uses *axis*
// for a mesh and *dim* for a tensor.
//
//   mesh.comm(tp{}).all_reduce(x);

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft {

/// Data parallel: each rank has its own sequences.
struct dp {
  static constexpr std::string_view name = "dp";
  static constexpr int id = 0;
};
/// Context parallel: each rank has a part of every sequence.
struct cp {
  static constexpr std::string_view name = "cp";
  static constexpr int id = 1;
};
/// Tensor parallel: each rank has a part of every large weight.
struct tp {
  static constexpr std::string_view name = "tp";
  static constexpr int id = 2;
};
/// Pipeline parallel: each rank has some of the layers.
struct pp {
  static constexpr std::string_view name = "pp";
  static constexpr int id = 3;
};
/// Expert parallel: each rank has some of the experts (expert mesh).
struct ep {
  static constexpr std::string_view name = "ep";
  static constexpr int id = 4;
};
/// Tensor parallel inside an expert (expert mesh).
struct etp {
  static constexpr std::string_view name = "etp";
  static constexpr int id = 5;
};
/// Data parallel of the experts (expert mesh).
struct edp {
  static constexpr std::string_view name = "edp";
  static constexpr int id = 6;
};

namespace detail {
struct DomainAxis {};
}  // namespace detail

/// Domain axes: each rank has a piece of every field along a dim of space (parallel/domain_parallel.hpp).
struct dx : detail::DomainAxis {
  static constexpr std::string_view name = "dx";
  static constexpr int id = 31;
};
/// The second domain axis.
struct dy : detail::DomainAxis {
  static constexpr std::string_view name = "dy";
  static constexpr int id = 30;
};
/// The third domain axis.
struct dz : detail::DomainAxis {
  static constexpr std::string_view name = "dz";
  static constexpr int id = 29;
};

namespace detail {

/// The suffix of a communicator's name between the copies of a shard: its ranks hold the same piece of an axis' shards ("dp
/// copies").
inline constexpr std::string_view copies_suffix = " copies";
/// The axis in such a name; empty for other names.
constexpr std::string_view axis_of_copies(std::string_view name) {
  return name.ends_with(copies_suffix) ? name.substr(0, name.size() - copies_suffix.size()) : std::string_view();
}

template <class A>
concept Axis = std::is_empty_v<A> && requires {
  { A::name } -> std::convertible_to<std::string_view>;
  { A::id } -> std::convertible_to<int>;
};

}  // namespace detail

inline constexpr int axis_count = 7;  ///< number of weft's axes without domain axes, which are placed as a user's are

/// Base of a user-defined axis whose ranks share their sequences. The axes of one Mesh have different numbers, from 0 on:
///
///   struct replica : weft::UserAxis<0> { static constexpr std::string_view name = "replica"; };
template <int number>
struct UserAxis {
  static_assert(number >= 0 && number < 29 - axis_count,
                "weft: UserAxis's number must be from 0 to 21: axes are counted by the bits of a word");
  static constexpr int id = axis_count + number;
};
/// Base of a user-defined axis whose ranks have different sequences, like those of dp.
template <int number>
struct UserDataAxis : UserAxis<number> {
  static constexpr bool own_sequences = true;
};

/// The bit of an axis, for sets of axes.
template <detail::Axis A>
inline constexpr unsigned axis_bit = 1u << A::id;

namespace detail {

template <class A>
inline constexpr bool is_domain_axis = std::is_base_of_v<DomainAxis, A>;
constexpr bool names_domain_axis(std::string_view name) { return name == dx::name || name == dy::name || name == dz::name; }

inline constexpr unsigned domain_axes = axis_bit<dx> | axis_bit<dy> | axis_bit<dz>;
/// The bits of all user-defined axes and of the domain axes.
inline constexpr unsigned user_axes = ~((1u << axis_count) - 1);

/// True if the ranks of the axis have different sequences, so that loss and gradients are sums over it.
template <class A>
inline constexpr bool is_data_axis = std::is_same_v<A, dp>;
template <class A>
requires requires { A::own_sequences; }
inline constexpr bool is_data_axis<A> = A::own_sequences;

}  // namespace detail

/// A list of axes, as a value: `Mesh mesh(world, axes<dp, tp>, {.tp = 2})`.
template <detail::Axis... A>
struct Axes {
  explicit Axes() = default;  // so that {} means degrees if both are possible
  template <detail::Axis X>
  static constexpr bool has = (std::is_same_v<X, A> || ...);
};
/// The value of Axes<A...>.
template <detail::Axis... A>
inline constexpr Axes<A...> axes{};

/// The degree of a user-defined axis: {replica{}, 2}.
struct UserDegree {
  template <detail::Axis A>
  UserDegree(A, std::size_t degree) : bit(axis_bit<A>), name(A::name), degree(degree) {
    static_assert(A::id >= axis_count && !detail::is_domain_axis<A>,
                  "weft: Degrees::user is for axes of a user's own: weft's axes have fields of their names, {.tp = 2}");
  }
  UserDegree(unsigned bit, std::string_view name, std::size_t degree) : bit(bit), name(name), degree(degree) {}
  unsigned bit;
  std::string_view name;
  std::size_t degree;
};

/// The number of ranks along each axis. 0: the rest of the world (only dp and edp).
struct Degrees {
  std::size_t tp = 1, cp = 1, ep = 1, etp = 1, dp = 0, edp = 0, pp = 1;
  std::size_t dx = 1, dy = 1, dz = 1;
  /// Degrees of user-defined axes; 1 if omitted: {.tp = 2, .user = {{replica{}, 2}}}.
  std::vector<UserDegree> user = {};
};

}  // namespace weft
