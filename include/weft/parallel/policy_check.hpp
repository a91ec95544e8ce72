// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a wrapper's policy, which names the axis that the wrapper binds, the placement of the hidden state on it and the
// hooks that it registers, and the policy that has neither. A wrong policy gives one error that names its member.
//
//   struct OwnPolicy : PlainPolicy {
//     using axis = tp;
//     using hidden_placement = Invariant<tp>;
//     OwnPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options);
//     auto hooks() { return &hooks_; }     // of a class derived from detail::Hooks
//   };

#include <concepts>
#include <type_traits>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/core/has_member.hpp>
#include <weft/device/device.hpp>
#include <weft/engine/hooks_check.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/tensor/placement.hpp>

namespace weft {

/// A policy without hooks, and with the schedule of a model without a pipeline: one micro-batch after the other.
struct PlainPolicy {
  detail::Hooks* hooks() { return nullptr; }
  static constexpr bool shards_parameters = false;
  static void adjust(ModelOptions&) {}
  static schedule::AnySchedule schedule(const ModelOptions&) { return schedule::erase<schedule::OneForwardOneBackward>(); }
};

namespace detail {

namespace policy_check {

WEFT_HAS_MEMBER(hooks)

enum class Fault { none, no_axis, axis, plain, no_placement, placement, other_axis, kind, no_hooks, hooks, constructor, axes };

template <class P>
concept Plain = requires(const ModelOptions& options, ModelOptions& adjusted) {
  typename std::bool_constant<P::shards_parameters>;
  P::adjust(adjusted);
  { P::schedule(options) } -> std::convertible_to<schedule::AnySchedule>;
};

template <class S>
struct AxisOf {
  using type = void;
};
template <class S>
requires requires { typename S::axis; }
struct AxisOf<S> {
  using type = typename S::axis;
};
template <class S>
inline constexpr bool lies = kind_of<S> == Kind::invariant || kind_of<S> == Kind::shard;

template <class A>
inline constexpr bool is_axes = false;
template <class... A>
inline constexpr bool is_axes<Axes<A...>> = true;

template <class P>
constexpr Fault fault() {
  if constexpr (!requires { typename P::axis; }) return Fault::no_axis;
  else if constexpr (!Axis<typename P::axis>) return Fault::axis;
  else if constexpr (!Plain<P>) return Fault::plain;
  else if constexpr (requires { typename P::axes; })
    return is_axes<typename P::axes> ? Fault::none : Fault::axes;  // it binds them itself
  else if constexpr (!requires { typename P::hidden_placement; }) return Fault::no_placement;
  else if constexpr (kind_of<typename P::hidden_placement> == Kind::absent) return Fault::placement;
  else if constexpr (!std::is_same_v<typename AxisOf<typename P::hidden_placement>::type, typename P::axis>)
    return Fault::other_axis;
  else if constexpr (!lies<typename P::hidden_placement>) return Fault::kind;
  else if constexpr (!requires(P & policy) {
                       { policy.hooks() } -> std::convertible_to<Hooks*>;
                     })
    return has_hooks<P>() ? Fault::hooks : Fault::no_hooks;
  else if constexpr (!std::is_constructible_v<P, const Communicator&, DefaultDevice&, const ModelOptions&>)
    return Fault::constructor;
  else return Fault::none;
}

}  // namespace policy_check

/// A type that Wrapper takes as its policy.
template <class P>
concept WrapperPolicy = policy_check::fault<P>()
== policy_check::Fault::none;

/// Reports why P is not a policy.
template <class P>
struct RefusedPolicy {
  using Fault = policy_check::Fault;
  static constexpr bool said = true;
  static constexpr Fault fault = policy_check::fault<P>();
  static_assert(fault != Fault::no_axis,
                "weft: this policy has no axis, so its wrapper binds none: write `using axis = tp;` (or another axis of the "
                "mesh) in it; see P in this class's template arguments");
  static_assert(fault != Fault::axis,
                "weft: this policy's axis is no axis: write `using axis = tp;`, or an empty type of your own with `static "
                "constexpr std::string_view name` and `static constexpr int id`; see P in this class's template arguments");
  static_assert(fault != Fault::plain,
                "weft: this policy lacks shards_parameters, adjust(options) or schedule(options), which every policy has: derive "
                "it from PlainPolicy (`struct Own : PlainPolicy`), publicly; see P in this class's template arguments");
  static_assert(fault != Fault::no_placement,
                "weft: this policy has no hidden_placement, the placement of the hidden state on its axis between blocks: write "
                "`using hidden_placement = Invariant<axis>;` where all ranks have the same, or `Shard<axis, 0>` where each has "
                "its own rows; see P in this class's template arguments");
  static_assert(fault != Fault::placement,
                "weft: this policy's hidden_placement is no placement: write `using hidden_placement = Invariant<axis>;`, or "
                "`Shard<axis, 0>`; see P in this class's template arguments");
  static_assert(fault != Fault::other_axis,
                "weft: this policy's hidden_placement is a placement on another axis than the one that it binds: write `using "
                "hidden_placement = Invariant<axis>;`, or `Shard<axis, 0>`; see P in this class's template arguments");
  static_assert(fault != Fault::kind,
                "weft: this policy's hidden_placement is Replicated or Partial, and the hidden state between blocks is neither "
                "used in part nor a term of a sum: write `using hidden_placement = Invariant<axis>;`, or `Shard<axis, 0>`; see P "
                "in this class's template arguments");
  static_assert(fault != Fault::no_hooks,
                "weft: this policy has no hooks(): write `auto hooks() { return &hooks_; }`, or derive it from PlainPolicy, "
                "which has none to register; see P in this class's template arguments");
  static_assert(fault != Fault::hooks,
                "weft: this policy's hooks() returns no pointer to hooks: return the address of a member of a class that derives "
                "from weft::detail::Hooks, publicly, or nullptr as detail::Hooks*; see P in this class's template arguments");
  static_assert(fault != Fault::constructor,
                "weft: this policy cannot be made on a rank: write the constructor `Own(const Communicator& comm, DefaultDevice& "
                "device, const ModelOptions& options)`, public; see P in this class's template arguments");
  static_assert(fault != Fault::axes,
                "weft: this policy's axes is no list of axes: write `using axes = Axes<ep, etp>;`, or leave it out where `axis` "
                "is the only one; see P in this class's template arguments");
};

/// Checks the hooks that a sound policy registers, if their class is known.
template <class P>
struct CheckedHooksOf {
  static constexpr bool said = true;
};
template <class P>
requires requires(P& policy) {
  policy.hooks();
} &&(!std::is_same_v<decltype(std::declval<P&>().hooks()), Hooks*>)struct CheckedHooksOf<P>
    : CheckedHooks<std::remove_pointer_t<decltype(std::declval<P&>().hooks())>> {};

}  // namespace detail

}  // namespace weft
