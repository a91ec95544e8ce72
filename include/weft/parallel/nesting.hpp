// SPDX-License-Identifier: Apache-2.0
#pragma once
// The nesting order of wrappers: which type may stand around which, known without instantiating any of them, and the stand-in for
// a nest that is not sound, so that a wrong composition is one error.
//
//   nesting_level<DataParallel<models::Gpt>> < nesting_level<TensorParallel<models::Gpt>>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/context/context.hpp>
#include <weft/engine/hook/keeper.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/parallel/model_options.hpp>

namespace weft {

namespace detail {
using NoContext = Context<Compute<DefaultDevice::execution_space, float>>;
/// Stands in for the context of a model that a program makes of a mesh or a world itself. The compiler refuses such a model where
/// it is trained (autograd/module.hpp), so there is no error here but when it runs.
WEFT_COLD inline const NoContext& refuse_place() {
  throw_error<UsageError>(
      {"a layer is made of a mesh or a world, and takes the context that a wrapper gives to its model's constructor: ",
       "DataParallel<Model> model(mesh, config)"});
}
}  // namespace detail
template <detail::Axis... X>
const detail::NoContext& operator/(const Mesh<X...>&, std::string_view) {
  return detail::refuse_place();
}
inline const detail::NoContext& operator/(const World&, std::string_view) { return detail::refuse_place(); }
template <class Exec>
const detail::NoContext& operator/(const Device<Exec>&, std::string_view) {
  return detail::refuse_place();
}

namespace gpu {
template <class Model>
class GraphedStep;  // parallel/cuda/graphed_step.hpp
}

/// The place of a type in the nesting order; a model is innermost.
template <class M>
inline constexpr int nesting_level = 100;
/// True for a wrapper around a model, such as DataParallel<M>.
template <class M>
inline constexpr bool is_wrapper = nesting_level<M> < 100;

namespace detail {

// The model at the heart of a nest of wrappers, sound or not.
template <class M>
struct ModelOf {
  using type = M;
};
template <class M>
requires is_wrapper<M>
struct ModelOf<M> {
  using type = typename M::model_type;
};
template <template <class, class...> class W, class M, class... R>
requires is_wrapper<W<M, R...>>
struct ModelOf<W<M, R...>> : ModelOf<M> {
};

// True if a wrapper, and every wrapper inside it, may stand where it does. Known without their classes, so that the wrappers
// around a refused one report nothing. A user-defined wrapper is recognised by its nesting_level.
template <class M>
inline constexpr bool sound = is_wrapper<M> || AnyModel<M>;

// Reports why a wrapper cannot stand around M, which is neither a wrapper nor a model.
template <class M>
struct RefusedModel : RefusedTypes<M> {};
template <class M>
requires is_wrapper<M>
struct RefusedModel<M> {
  static constexpr bool said = true;
};  // M's own fault is reported in M
template <class M>
requires(!is_wrapper<M> && requires {
  typename M::model_type;
  typename M::Inner;
}) struct RefusedModel<M> {
  static constexpr bool said = true;  // first, because a compiler drops the members after an error
  static_assert(is_wrapper<M>,
                "weft: a wrapper around a wrapper that does not declare its place in the order of nesting: write `template "
                "<class M> inline constexpr int weft::nesting_level<Own<M>> = 18;` before its class (data 10, context 15, tensor "
                "20, expert 25, pipeline 30); see M in this class's template arguments");
};

/// The config of a model that was given none: refused, with the config to write.
template <class M>
const typename M::Config& no_config() {
  static_assert(
      sizeof(M) == 0,
      "weft: a model is made with its config: DataParallel<Model> model(mesh, {.width = 64}), or {} for the values that "
      "its Config begins with; see M in this function's template arguments");
  throw_error<UsageError>({"a model without a config"});
}

// Stands in for a wrapper that is not sound. It accepts everything, so that there is only one error.
template <class M>
struct Refused {
  static_assert(sizeof(M) != 0);  // a fault further inside is reported there
  static_assert(sound<M> || RefusedModel<M>::said);
  using model_type =
      std::conditional_t<AnyModel<typename ModelOf<M>::type>, typename ModelOf<M>::type, NoModel<typename ModelOf<M>::type>>;
  using Config = typename model_type::Config;
  Refused(const auto&, const Config&, const ModelOptions& = {}) {}
  template <class... T>
  explicit Refused(T&&...) {}
  template <class... T>
  double train_step(T&&...) {
    return 0;
  }
  template <class... T>
  double evaluate(T&&...) {
    return 0;
  }
  template <class... T>
  std::vector<float> next_logits(T&&...) {
    return {};
  }
  template <class F>
  void for_each_state(F&&) {}
  template <class... T>
  void freeze(T&&...) {}
  template <class... T>
  void unfreeze(T&&...) {}
  const std::vector<std::string>& parameter_names() const;
  Communicator communicator() const { return {}; }
  DefaultDevice& device() const;
};

// Stands in for a wrapper whose policy is not one: the wrappers around it are sound, construct it and bind their axes through it.
template <class M>
struct RefusedInner : Refused<M> {
  using Refused<M>::Refused;
  using Inner = RefusedInner;
  static constexpr bool shards_parameters = false;
  static void adjust(ModelOptions&) {}
  template <class X>
  static constexpr bool uses(X) {
    return true;
  }
  template <class... X>
  static constexpr bool has_axes() {
    return true;
  }
  auto& stages() { return *this; }
  AxesInForce axes() const { return {}; }
  void set_everyone(const Communicator&) {}
  const std::shared_ptr<StepGradients>& gradients() const;       // never called, as in a program that does not compile
  std::span<const std::shared_ptr<StepBuffer>> buffers() const;  // nor this
  template <class Context>
  Context bound(const Context& context) {
    return context;
  }
  void check_hook() {}
  void keep_hooks(hook::Keeper&) {}
};

template <class M>
struct ScalarOf {
  using type = void;
};
template <class M>
requires requires { typename ModelOf<M>::type::scalar; }
struct ScalarOf<M> {
  using type = typename ModelOf<M>::type::scalar;
};

/// The model at the heart of a nest of wrappers.
template <class M>
using model_of_t = typename ModelOf<M>::type;

}  // namespace detail

}  // namespace weft
