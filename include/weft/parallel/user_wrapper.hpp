// SPDX-License-Identifier: Apache-2.0
#pragma once
// A user-defined wrapper over a user-defined axis, without any edit to weft. The policy names the axis and its place among weft's
// wrappers, and overrides some hooks of a step.
//
//   struct replica : weft::UserDataAxis<0> { static constexpr std::string_view name = "replica"; };
//   struct SumReplicas : weft::UserPolicy<replica, weft::Nesting::data> {
//     void gradients_ready(Unit& unit) override {
//       for (weft::ParameterState* state : unit.parameters)
//         if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
//     }
//   };
//   template <class M> using ReplicaParallel = weft::UserWrapper<SumReplicas, M>;

#include <type_traits>

#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>

namespace weft {

/// The place of a user-defined wrapper: directly inside weft's wrapper of that name, beside other user-defined ones.
enum class Nesting : int {
  data = 12,     ///< inside DataParallel and FullyShardedDataParallel, around ContextParallel
  context = 17,  ///< around TensorParallel
  tensor = 22,   ///< around ExpertParallel and PipelineParallel
};

namespace detail {
struct UserPolicyBase {};
/// Stands in for the policy of a wrapper that is refused, so that the wrappers around it report nothing. A policy that derives
/// from it has refuse(), whose error is reported where the model is made: an alias of the wrapper stays a type.
struct RefusedUserPolicy : UserPolicyBase {};
template <class Policy>
constexpr bool is_refused_policy() {
  if constexpr (std::is_base_of_v<RefusedUserPolicy, Policy>) return Policy::refuse();
  else return false;
}
}  // namespace detail

/// The base of a policy. `A` is the axis, `place` its place among the wrappers, `Stream` the placement of the hidden state on the
/// axis between blocks (Invariant on a UserDataAxis, whose ranks have different sequences). A policy has a default constructor
/// and overrides one or more of these events, which every rank of the axis meets in the same order:
///
///   void begin(bool training);          // a training step, or a forward without one, begins
///   void before_forward(Unit& unit);    // of one micro-batch, as are after_forward, before_backward and after_backward
///   void gradients_ready(Unit& unit);   // no layer adds to the unit's gradients any more
///   void finish();                      // the step's gradients are complete: wait for pending messages
///
/// A Unit is a part of the model, such as a block: its `name`, and its `parameters`, pointers to ParameterState. gradients_ready
/// is called once a step, and under stages 2 and 3 of ZeRO after each micro-batch (ShardOptions::reduce_each_micro_batch); for
/// the innermost wrapper first, so sums over inner axes are complete then, and those over data ranks follow.
template <detail::Axis A, Nesting place, class Stream = Invariant<A>>
class UserPolicy : public PlainPolicy, public detail::Hooks, public detail::UserPolicyBase {
  static_assert(A::id >= axis_count,
                "weft: UserPolicy's first template parameter must be an axis of your own, derived from UserAxis or UserDataAxis: "
                "weft's axes have wrappers");
  static_assert(std::is_same_v<typename Stream::axis, A>,
                "weft: UserPolicy's third template parameter is the placement of the hidden state on the policy's axis: "
                "Invariant<axis>, or Shard<axis, 0>");

 public:
  using axis = A;
  using hidden_placement = Stream;
  using Unit = detail::Unit;
  static constexpr Nesting nesting = place;

  detail::Hooks* hooks() { return this; }
  /// The ranks of the axis.
  const Communicator& comm() const { return comm_; }
  DefaultDevice& device() const { return *device_; }

 protected:
  void attach(const Communicator& comm, DefaultDevice& device) {
    comm_ = comm;
    device_ = &device;
  }

 private:
  Communicator comm_;
  DefaultDevice* device_ = nullptr;
};

namespace detail {

template <class Policy>
inline constexpr bool is_user_policy =
    std::is_base_of_v<UserPolicyBase, Policy>&& std::is_default_constructible_v<Policy> && !std::is_final_v<Policy>;
template <class Policy>
inline constexpr int user_level = int(Nesting::tensor);  // a place that the wrappers around a refused one take
template <class Policy>
requires is_user_policy<Policy>
inline constexpr int user_level<Policy> = int(Policy::nesting);

/// A user's policy in the form that Wrapper takes. Before its gradients_ready, the ranks of the axis agree on the gradients that
/// are unreduced, so that all of them take part in the same sums.
template <class Policy>
struct AttachedPolicy final : Policy {
  AttachedPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options)
      : reproducible(bool(options.numerics.reproducible)) {
    this->attach(comm, device);
  }
  void gradients_ready(Unit& unit) override {
    using A = typename Policy::axis;
    agree_on_unreduced(this->comm(), this->device(), unit, axis_bit<A>);
    if (reproducible && this->comm().size() > 1)
      for (const ParameterState* state : unit.parameters)
        if (state->gradients().unreduced(A())) refuse_order(*state);
    Policy::gradients_ready(unit);
  }
  [[noreturn]] WEFT_COLD void refuse_order(const ParameterState& state) const {
    throw_error<UsageError>({"reproducible: the gradient of ", state.name(), " is a sum over ", Policy::axis::name, "(",
                             this->comm().size(),
                             "), an axis of a user's own, and the order of sums is known over dp alone, so it has other bits "
                             "than on one rank: leave "
                             "reproducible out, or compute the gradient whole on each rank of the axis"});
  }
  bool reproducible;
};

}  // namespace detail

/// M with a user-defined policy: see UserPolicy.
template <class Policy, class M>
class UserWrapper;

template <class Policy, class M>
inline constexpr int nesting_level<UserWrapper<Policy, M>> = detail::user_level<Policy>;

namespace detail {
template <class Policy, class M>
struct ModelOf<UserWrapper<Policy, M>> : ModelOf<M> {};
// True if M, or a wrapper inside it, is a user's wrapper over A.
template <class M, class A>
inline constexpr bool wraps_over = false;
template <template <class, class...> class W, class M, class... R, class A>
inline constexpr bool wraps_over<W<M, R...>, A> = wraps_over<M, A>;
template <class Policy>
struct UserAxisOf {
  using type = void;
};
template <class Policy>
requires is_user_policy<Policy>
struct UserAxisOf<Policy> {
  using type = typename Policy::axis;
};
template <class Policy, class M, class A>
inline constexpr bool wraps_over<UserWrapper<Policy, M>, A> =
    std::is_same_v<typename UserAxisOf<Policy>::type, A> || wraps_over<M, A>;

template <class Policy, class M>
inline constexpr bool stands_where_it_may = false;
template <class Policy, class M>
requires is_user_policy<Policy>
inline constexpr bool stands_where_it_may<Policy, M> =
    nesting_level<M> >= user_level<Policy> && !wraps_over<M, typename Policy::axis>;

template <class Policy, class M>
inline constexpr bool sound<UserWrapper<Policy, M>> = stands_where_it_may<Policy, M>&& sound<M>;
template <class Policy, class M, bool = sound<UserWrapper<Policy, M>>>
struct UserBase {
  using type = Refused<M>;
};
template <class Policy, class M>
struct UserBase<Policy, M, true> {
  using type = Wrapper<AttachedPolicy<Policy>, M>;
};
}  // namespace detail

template <class Policy, class M>
class UserWrapper : public detail::UserBase<Policy, M>::type {
  static_assert(std::is_base_of_v<detail::UserPolicyBase, Policy>,
                "weft: UserWrapper's first template parameter must be a policy, derived from UserPolicy<axis, Nesting::data>");
  static_assert(!std::is_base_of_v<detail::UserPolicyBase, Policy> || detail::is_user_policy<Policy> ||
                    detail::is_refused_policy<Policy>(),
                "weft: a policy of your own is made by weft and gets the axis' ranks then: it needs a default constructor and "
                "must not be final or abstract");
  static_assert(!detail::is_user_policy<Policy> || nesting_level<M> >= detail::user_level<Policy>,
                "weft: the wrapper inside this UserWrapper belongs outside it: wrappers nest in the order data, context, tensor, "
                "by the Nesting of their policies");
  static_assert(!detail::is_user_policy<Policy> || nesting_level<M> < detail::user_level<Policy> ||
                    detail::stands_where_it_may<Policy, M>,
                "weft: two UserWrappers share one axis, so its ranks would do their part twice: keep one, or give the other "
                "another axis");
  using Base = typename detail::UserBase<Policy, M>::type;

 public:
  using Base::Base;
};

}  // namespace weft
