// SPDX-License-Identifier: Apache-2.0
#pragma once
// The context that every layer function receives. Its type says which axes are in force and what is computed in what; all
// else is in a plain struct. Layers stay plain types with templated members.
//
//   if constexpr (Context::has(tp{})) context.comm(tp{}).all_reduce(x);

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/nn/hooks.hpp>
#include <weft/tensor/device.hpp>
#include <weft/tensor/placement.hpp>

namespace weft {

/// Where and in what a model computes.
template <class Exec, Real S>
struct Compute {
  using execution_space = Exec;
  using scalar = S;
};

/// An axis in force, its communicator, and how the hidden state lies on it between blocks.
template <Axis A, class Stream = Invariant<A>>
struct Bind {
  using axis = A;
  using stream = Stream;
  Communicator comm;
};

/// The part of a context on which no type depends.
struct Environment {
  std::vector<Hooks*> hooks;  ///< outermost wrapper first
  std::uint64_t seed = 1;     ///< of weights and dropout
  std::uint64_t step = 0;     ///< dropout masks differ from step to step
  std::size_t first_row = 0;  ///< of this micro-batch in the global batch, in tokens
  std::size_t length = 0;     ///< tokens of a sequence
  bool training = true;       ///< dropout is active
  std::string path;           ///< of the layer being built
};

namespace detail {
template <class A, class First, class... Rest>
auto find_bind() {
  if constexpr (std::is_same_v<A, typename First::axis>) return std::type_identity<First>{};
  else return find_bind<A, Rest...>();
}
}  // namespace detail

template <class C, class... B>
class Context : B... {
 public:
  using execution_space = typename C::execution_space;
  using scalar = typename C::scalar;
  using device_type = Device<execution_space>;
  /// The Bind of an axis in force.
  template <class A>
  using bind_t = typename decltype(detail::find_bind<A, B...>())::type;

  Environment env;

  Context(device_type& device, Environment environment, B... binds) : B(std::move(binds))..., env(std::move(environment)), device_(&device) {}

  device_type& device() const { return *device_; }

  /// Is this axis in force?
  template <Axis A>
  static constexpr bool has(A) {
    return (std::is_same_v<A, typename B::axis> || ...);
  }
  template <Axis A>
  const Communicator& comm(A) const {
    static_assert(has(A{}), "weft: this axis is not in force here: wrap the model in the wrapper that binds it");
    if constexpr (has(A{})) return static_cast<const bind_t<A>&>(*this).comm;
  }
  /// This rank's coordinate on the axis; 0 where it is not in force.
  template <Axis A>
  std::size_t rank(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).rank());
    else return 0;
  }
  /// The degree of the axis; 1 where it is not in force.
  template <Axis A>
  std::size_t size(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).size());
    else return 1;
  }

  /// This context with one more axis in force.
  template <class Stream, Axis A>
  auto with(A, Communicator comm, Hooks* hooks = nullptr) const {
    static_assert(!has(A{}), "weft: this axis is bound twice: two wrappers over the same axis");
    Environment environment = env;
    if (hooks) environment.hooks.push_back(hooks);
    return Context<C, B..., Bind<A, Stream>>(*device_, std::move(environment), static_cast<const B&>(*this)..., Bind<A, Stream>{std::move(comm)});
  }

  /// The context of a part of the layer: `context / "query"` extends the path of names.
  Context operator/(const std::string& name) const {
    Context inner = *this;
    inner.env.path = env.path.empty() ? name : env.path + "." + name;
    return inner;
  }

  /// For each axis in force, `f(axis)`.
  template <class F>
  static constexpr void for_each_axis(F&& f) {
    (f(typename B::axis{}), ...);
  }

 private:
  device_type* device_;
};

namespace detail {
template <class Context, class A>
auto stream_of() {
  if constexpr (Context::has(A{})) return typename Context::template bind_t<A>::stream{};
  else return Absent<A>{};
}
}  // namespace detail

/// How the hidden state lies on A between blocks (Invariant, or Shard<tp, 0> under sequence parallelism).
template <class Context, Axis A>
using stream_t = decltype(detail::stream_of<Context, A>());

}  // namespace weft
