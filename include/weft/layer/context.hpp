// SPDX-License-Identifier: Apache-2.0
#pragma once
// The context that every layer function receives. Its type says which axes are in force and what is computed in what; all
// else is in a plain struct. Layers stay plain types with templated members.
//
//   if constexpr (Context::has(tp{})) context.comm(tp{}).all_reduce(x);

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/list.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/device/device.hpp>
#include <weft/tensor/placement.hpp>

namespace weft {

/// How attention meets the keys of other ranks of cp: they go round a ring, or ranks change over from tokens to heads.
struct Ring {};
struct Ulysses {};
/// Either, a choice of the run: ModelOptions::ulysses.
struct RingOrUlysses {};

/// Where and in what a model computes.
template <class Exec, detail::Real S>
struct Compute {
  using execution_space = Exec;
  using scalar = S;
};

/// An axis in force, its communicator, how the hidden state lies on it between blocks, and by which method layers work across
/// it where there are several (cp: Ring or Ulysses).
template <detail::Axis A, class HiddenPlacement = Invariant<A>, class Method = void>
struct Bind {
  using axis = A;
  using hidden_placement = HiddenPlacement;
  using method = Method;
  Communicator comm;
};

namespace detail {

/// In the place of a stream: an axis of the expert mesh, which places no tensor of the dense one. It is in force, so that it can
/// be talked over, and Context::expert_mesh() is where it places tensors.
struct ExpertMeshAxis { using axis = void; };

struct StepBuffer;

class Registry;

}  // namespace detail

namespace schedule {
class TimelineRecorder;
}

namespace detail {

/// The part of a context on which no type depends.
struct Environment {
  Environment() = default;
  WEFT_OUT_OF_LINE Environment(const Environment& other) = default;
  WEFT_OUT_OF_LINE Environment(Environment&& other) noexcept = default;
  Environment& operator=(Environment&& other) noexcept = default;
  WEFT_OUT_OF_LINE ~Environment() {}
  WEFT_OUT_OF_LINE void add(Hooks* more) { hooks.push_back(more); }

  List<Hooks*> hooks;  ///< outermost wrapper first
  std::uint64_t seed = 1;     ///< of weights and dropout
  std::uint64_t step = 0;     ///< dropout masks differ from step to step
  std::size_t first_row = 0;  ///< of this micro-batch in the global batch, in tokens
  std::size_t length = 0;     ///< tokens of a sequence; see sequence_length(context, x), layer/global_index.hpp
  std::size_t longest = 0;    ///< sequence of the global batch: rows of the global batch are counted in steps of it; 0: as this rank's batch says
  std::size_t rows = 0;       ///< tokens of this micro-batch on this data rank, before cp and tp cut them; 0: not known
  bool separates_terms = false;  ///< GradientAccumulator::separates_terms: rows of different data ranks are not multiplied together
  bool ulysses = false;       ///< ModelOptions::ulysses
  bool training = true;       ///< dropout is active
  bool running = false;       ///< a step, or forward alone: layers are used, and none is made
  double loss_scale = 1;      ///< factor in every gradient (LossScale)
  double loss_gradient = 1;   ///< of each token's loss: the loss scale over the tokens that count in the global batch
  double auxiliary_gradient = 1;  ///< of each token's part of an auxiliary loss: the loss scale over the tokens of the global batch, masked or not
  std::string path;           ///< of the layer being built
  Registry* registry = nullptr;  ///< of the model that is being built: parameters get their room when it is known who holds them
  List<std::shared_ptr<StepBuffer>>* buffers = nullptr;  ///< where layers being built leave what they keep from step to step
  schedule::TimelineRecorder* timeline = nullptr;              ///< ModelOptions::timeline
};

/// Tokens of a sequence, for the library's own uses: they know which rows of it a rank holds.
inline std::size_t& sequence_length(Environment& environment) { return environment.length; }
inline std::size_t sequence_length(const Environment& environment) { return environment.length; }

/// In the place of Environment::length where a rank holds some rows of a sequence only: read, it does not compile.
template <class Rows>
struct CutLength {
  operator std::size_t() const {
    static_assert(std::is_void_v<Rows>,
                  "weft: rows of a sequence are cut over cp or tp here, so context.env.length says nothing of the rows that a rank holds: take "
                  "sequence_length(context, x) where x holds whole sequences, and positions_of(context, x) for each row's place in its sequence");
    return 0;
  }
};
struct CutEnvironment : Environment {
  CutEnvironment() = default;
  CutEnvironment(Environment&& whole) noexcept : Environment(std::move(whole)) {}
  [[no_unique_address]] CutLength<CutEnvironment> length;
};

// Rows lie cut inside a sequence on this axis: over cp always, over tp under sequence parallelism. Over dp a rank has whole ones.
template <class Placed>
inline constexpr bool cuts_sequences = (std::is_same_v<typename Placed::axis, cp> || std::is_same_v<typename Placed::axis, tp>)&&shard_dim<Placed> == 0;

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

  /// An Environment whose `length` cannot be read where rows of a sequence are cut over an axis.
  std::conditional_t<(detail::cuts_sequences<typename B::hidden_placement> || ...), detail::CutEnvironment, detail::Environment> env;

  Context(device_type& device, detail::Environment environment, B... binds) : B(std::move(binds))..., env(std::move(environment)), device_(&device) {}

  device_type& device() const { return *device_; }

  /// Is this axis in force?
  template <detail::Axis A>
  static constexpr bool has(A) {
    return (std::is_same_v<A, typename B::axis> || ...);
  }
  template <detail::Axis A>
  const Communicator& comm(A) const {
    static_assert(has(A{}), "weft: this axis is not in force here: wrap the model in the wrapper that binds it");
    if constexpr (has(A{})) return static_cast<const bind_t<A>&>(*this).comm;
  }
  /// This rank's coordinate on the axis; 0 where it is not in force.
  template <detail::Axis A>
  std::size_t rank(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).rank());
    else return 0;
  }
  /// The degree of the axis; 1 where it is not in force.
  template <detail::Axis A>
  std::size_t size(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).size());
    else return 1;
  }

  /// This context with one more axis in force.
  template <class HiddenPlacement, class Method = void, detail::Axis A>
  auto with(A, Communicator comm, detail::Hooks* hooks = nullptr) const {
    static_assert(!has(A{}), "weft: this axis is bound twice: two wrappers over the same axis");
    detail::Environment environment = env;
    if (hooks) environment.add(hooks);
    return Context<C, B..., Bind<A, HiddenPlacement, Method>>(*device_, std::move(environment), static_cast<const B&>(*this)..., Bind<A, HiddenPlacement, Method>{std::move(comm)});
  }

  /// The context of a part of the layer: `context / "query"` extends the path of names.
  WEFT_OUT_OF_LINE Context operator/(std::string_view name) const {
    Context inner = *this;
    detail::append_to(inner.env.path, {env.path.empty() ? "" : ".", name});
    return inner;
  }

  /// Is this axis in force, and one on which tensors of this context are placed?
  template <detail::Axis A>
  static constexpr bool places(A) {
    return ((std::is_same_v<A, typename B::axis> && !std::is_same_v<typename B::hidden_placement, detail::ExpertMeshAxis>) || ...);
  }
  /// The bits of the axes on which tensors say how they lie: stages of a pipeline do not share tensors.
  static constexpr unsigned placed = ((std::is_same_v<typename B::hidden_placement, detail::ExpertMeshAxis> || std::is_same_v<typename B::axis, pp> ? 0u : axis_bit<typename B::axis>) | ... | 0u);
  /// For each axis that places tensors, `f(axis)`.
  template <class F>
  static constexpr void for_each_axis([[maybe_unused]] F&& f) {
    [[maybe_unused]] const auto each = [&]<class One>(std::type_identity<One>) {
      if constexpr (!std::is_same_v<typename One::hidden_placement, detail::ExpertMeshAxis>) f(typename One::axis{});
    };
    (each(std::type_identity<B>{}), ...);
  }

  /// The context of the expert mesh over the same ranks, for parameters and tensors of experts: edp and etp place them, ep only
  /// says which experts are here, as pp does with layers.
  auto expert_mesh() const {
    return Context<C, Bind<edp>, Bind<etp>, Bind<ep, detail::ExpertMeshAxis>>(*device_, env, {comm(edp{})}, {comm(etp{})}, {comm(ep{})});
  }

 private:
  device_type* device_;
};

namespace detail {

template <class Context, class A>
auto hidden_placement_of() {
  if constexpr (Context::has(A{})) return typename Context::template bind_t<A>::hidden_placement{};
  else return Absent<A>{};
}
template <class Context, class A>
auto method_of() {
  if constexpr (Context::has(A{})) return std::type_identity<typename Context::template bind_t<A>::method>{};
  else return std::type_identity<void>{};
}

/// By which method layers work across A; void where there is only one way, or the axis is not in force.
template <class Context, Axis A>
using method_t = typename decltype(method_of<Context, A>())::type;

/// How the hidden state lies on A between blocks (Invariant, or Shard<tp, 0> under sequence parallelism).
template <class Context, Axis A>
using hidden_placement_t = decltype(hidden_placement_of<Context, A>());

/// Whether attention changes over from tokens to heads.
template <class Context>
bool uses_ulysses(const Context& context) {
  return std::is_same_v<method_t<Context, cp>, Ulysses> || (std::is_same_v<method_t<Context, cp>, RingOrUlysses> && context.env.ulysses);
}

}  // namespace detail

}  // namespace weft
