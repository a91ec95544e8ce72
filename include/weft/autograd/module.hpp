// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of which one writes the forward: its backward follows from the operations that the forward calls, with the collectives
// that are the duals of the forward's, and the weight gradients apart (for schedules that defer them). It is a layer as any
// other: in Sequential and Residual, under every wrapper, in check_layer.
//
//   struct GatedMlp : Module<GatedMlp> {
//     Parameter<Shard<tp, 0>> gate, up;
//     Parameter<Shard<tp, 1>> down;
//     GatedMlp(const auto& context, std::size_t width, std::size_t hidden);
//     auto forward(const auto& x) const {
//       auto inside = to<Replicated<tp>>(x);
//       return matmul(silu(matmul(inside, gate)) * matmul(inside, up), down);
//     }
//   };
//
// The forward receives and returns Variables (autograd/variable.hpp). It calls operations on them, other Modules and
// layers that derive from Primitive, as functions: norm(x); and any other layer with call(layer, x).

#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/model_kind.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/engine/layer_error.hpp>

namespace weft {

namespace detail {

/// An input of a Module's call that has a gradient.
template <class X>
struct TapeInput : TapeStep, ValueNode<X> {
  explicit TapeInput(const X& x) : device(&x.device()), shape(x.shape()) {}
  void apply(Tape&) {
    if (!destination) return;
    if (*this) *destination = this->take();
    else *destination = zero_gradient<X>(*device, shape);  // the forward does not use this input
  }
  typename X::device_type* device;
  Shape shape;
  gradient_t<X>* destination = nullptr;
};

template <class X>
struct NoTapeInput {};

// The inputs of a Module's call: a tensor has a gradient if it is Real; a tuple is taken apart, into as many arguments; a struct
// is one argument.
template <class Context, class X>
struct ModuleInput {
  static constexpr bool real = !std::is_same_v<gradient_t<X>, Nothing>;
  using node_type = std::conditional_t<real, TapeInput<X>*, NoTapeInput<X>>;
  using gradient_type = gradient_t<X>;

  // `wanted`: whether a Real input has a gradient.
  static auto make(Tape& tape, const X& x, bool wanted = true) {
    if constexpr (real) {
      if (tape.records() && wanted) return std::tuple(Variable<Context, X>(x, &tape.record<TapeInput<X>>(x), tape));
    }
    return std::tuple(Variable<Context, X>(x, tape));
  }
  static node_type node([[maybe_unused]] const auto& variable) {
    if constexpr (real) return static_cast<TapeInput<X>*>(variable.node());
    else return {};
  }
  static void receive(node_type node, gradient_type& gradient) {
    if constexpr (real) {
      if (node != nullptr) node->destination = &gradient;
    }
  }
};
template <class Context, class... X>
struct ModuleInput<Context, std::tuple<X...>> {
  using node_type = std::tuple<typename ModuleInput<Context, X>::node_type...>;
  using gradient_type = std::tuple<typename ModuleInput<Context, X>::gradient_type...>;

  static auto make(Tape& tape, const std::tuple<X...>& x, bool wanted = true) {
    return std::apply([&](const X&... one) { return std::tuple_cat(ModuleInput<Context, X>::make(tape, one, wanted)...); }, x);
  }
  template <class... V>
  static node_type node(const V&... variable) {
    return {ModuleInput<Context, X>::node(variable)...};
  }
  static void receive(const node_type& nodes, gradient_type& gradients) {
    each(nodes, gradients, std::index_sequence_for<X...>());
  }
  // The places of the gradients, one by one.
  template <class... G>
  static void receive(const node_type& nodes, const std::tuple<G&...>& gradients) {
    each(nodes, gradients, std::index_sequence_for<X...>());
  }

 private:
  template <class G, std::size_t... I>
  static void each(const node_type& nodes, G& gradients, std::index_sequence<I...>) {
    (ModuleInput<Context, X>::receive(std::get<I>(nodes), std::get<I>(gradients)), ...);
  }
};

template <class Context, StructOfTensors X>
struct ModuleInput<Context, X> {
  struct MakeParts {
    template <class... Part>
    auto operator()(const Part&...) const {
      return ModuleInput<Context, std::tuple<Part...>>();
    }
  };
  using Parts = decltype(with_parts(std::declval<const X&>(), MakeParts()));
  using node_type = typename Parts::node_type;
  using gradient_type = gradient_t<X>;

  static auto make(Tape& tape, const X& x, bool& input_gradient) {
    auto parts = with_parts(x, [&](const auto&... part) { return Parts::make(tape, std::tuple(part...), input_gradient); });
    return std::tuple(std::apply([](auto&... part) { return variable_of_t<Context, X>{std::move(part)...}; }, parts));
  }
  static node_type node(const variable_of_t<Context, X>& variables) {
    return with_parts(variables, [](const auto&... part) { return Parts::node(part...); });
  }
  static void receive(const node_type& nodes, gradient_type& gradients) {
    with_parts(gradients, [&](auto&... part) { Parts::receive(nodes, std::tie(part...)); });
  }
};

// The saved state of a Module's call, and the deferred state between the two halves of its backward.
template <class Context, class Input, class Output>
struct ModuleSaved {
  TapePointer tape;
  typename Input::node_type input;
  Output output;
};
template <class Context>
struct ModuleDeferred {
  TapePointer tape;
};

/// Whether a Module takes an X as an argument behind the first, as it is: an object of which gradients do not depend.
template <class X>
inline constexpr bool passed_along = false;

template <class Y>
inline constexpr bool is_module_output = is_variable<Y> || StructOfVariables<Y>;
template <class... Y>
inline constexpr bool is_module_output<std::tuple<Y...>> = (is_module_output<Y> && ...);

// Overload resolution takes it if L's own forward cannot be called with V.... If it takes L's and the body of that does not
// compile, the compiler has reported it.
struct NotCallable {};
template <class, class To>
using each_to = To;
template <class L, class... V>
struct BesideForward : L {
  using L::forward;
  NotCallable forward(each_to<V, AnyArgument>...) const;
};
/// Whether the forward of L can be called with V..., also if its body does not compile. Asked before anything else calls it:
/// clang forgets a function whose body it has refused.
template <class L, class... V>
constexpr bool takes_variables() {
  if constexpr (!layer_check::has_forward<L>()) return false;
  else if constexpr (std::is_final_v<L>) return requires(const L& layer, const V&... x) {
      layer.forward(x...);
    };
  else return !requires(const BesideForward<L, V...>& layer, const V&... x) {
      requires std::is_same_v<decltype(layer.forward(x...)), NotCallable>;
    };
}

template <class L, class... V>
concept ForwardsVariables = takes_variables<L, V...>() && requires(const L& layer, const V&... x) {
  layer.forward(x...);
};

// Whether L's forward, called with V..., is not const. No body is compiled if it is const: another forward is preferred.
template <class L, class... V>
struct BesideConstForward : L {
  using L::forward;
  NotCallable forward(const V&...) const;
};
template <class L, class... V>
constexpr bool forward_is_not_const() {
  if constexpr (!layer_check::has_forward<L>() || std::is_final_v<L>) return false;
  else return requires(BesideConstForward<L, V...> & layer, const V&... x) {
      requires !std::is_same_v<decltype(layer.forward(x...)), NotCallable>;
    };
}
// Whether a forward that is no template takes tensors: its parameters' types are known without a call.
template <class F>
struct PlainForward {
  static constexpr bool takes_tensors = false, said = false;
};
template <class L, class R, class... A>
struct PlainForward<R (L::*)(A...) const> {
  static constexpr bool bare =
      (is_refused<A> || ... || false) || (std::is_base_of_v<AlreadyRefused, std::remove_cvref_t<A>> || ...);
  static constexpr bool said = (AnyTensor<A> || ...);  // the compiler has refused the body
  static constexpr bool takes_tensors = bare || ((AnyTensor<A> || ...) && !is_refused<R>);
};
template <class L, class R, class... A>
struct PlainForward<R (L::*)(A...)> : PlainForward<R (L::*)(A...) const> {};
/// Refuses a forward that takes tensors: true if it does.
template <class L>
constexpr bool refuse_tensor_forward() {
  if constexpr (requires { &L::forward; }) {
    constexpr bool tensors = PlainForward<decltype(&L::forward)>::takes_tensors;
    static_assert(
        !tensors,
        "weft: this Module's forward takes tensors of one type: it is called with Variables, whose types depend on the "
        "mesh: write `auto forward(const auto& x) const`, a template, which cannot be virtual; see L in this function's "
        "template arguments");
    using Plain = PlainForward<decltype(&L::forward)>;
    return Plain::takes_tensors || Plain::said;
  } else {
    return false;
  }
}
template <class L, class... V>
constexpr void refuse_call() {
  if constexpr (!refuse_tensor_forward<L>() && !takes_variables<L, V...>()) {
    constexpr bool not_const = forward_is_not_const<L, V...>();
    static_assert(!not_const,
                  "weft: this Module's forward is not const: several micro-batches may be in flight, so a forward changes no "
                  "member: write `auto forward(const auto& x) const`; see L in this function's template arguments");
    static_assert(
        not_const,
        "weft: this Module's forward cannot be called with these arguments: write `auto forward(const auto& x) const`, "
        "public, with as many arguments as it is called with, and without a context, which each Variable has: x.context(); see "
        "L in this function's template arguments");
  }
}

}  // namespace detail

/// The base class of a layer Self that writes `auto forward(const auto&... x) const` on Variables. An input that is a tuple is
/// passed as several arguments; several outputs are returned as a std::tuple.
template <class Self>
class Module {
 public:
  /// In another Module's forward: the same call, recorded in its tape.
  template <class... V>
  requires((AnyVariable<V> || detail::StructOfVariables<V> || detail::passed_along<V>)&&...) auto operator()(
      const V&... x) const {
    if constexpr (sizeof...(V) == 0) {
      return self().forward();
    } else {
      detail::refuse_call<Self, V...>();
      if constexpr (detail::ForwardsVariables<Self, V...>) {
        auto& tape = detail::first_variable(std::get<0>(std::tie(x...))).tape();
        detail::ChildCall call(tape, &detail::layer_kind<Self>);
        auto y = forward_in(tape, x...);
        call.end();
        return y;
      } else {
        return detail::AlreadyRefused();
      }
    }
  }
  template <class... V>
  detail::AlreadyRefused operator()(const V&...) const {
    detail::refuse_arguments<V...>();
    return {};
  }

  template <class... Others>
  detail::AlreadyRefused operator()(detail::AlreadyRefused refused, const Others&...) const {
    return refused;
  }
  // Functions of a model in a wrapper.
  template <class... A>
  double train_step(const A&...) const {
    detail::refuse_bare_model<Self>();
    return 0;
  }
  template <class... A>
  double evaluate(const A&...) const {
    detail::refuse_bare_model<Self>();
    return 0;
  }

  // The layer concept (autograd/layer.hpp), for weft::forward and weft::backward_input.
  template <class Context, class X, class... Others>
  auto recorded_forward(const Context& context, const X& x, const Others&... others) const {
    return recorded_call(true, context, x, others...);
  }
  // `input_gradient`: if not, backward gives no gradient of x.
  template <class Context, class X, class... Others>
  auto recorded_call(bool input_gradient, const Context& context, const X& x, const Others&... others) const {
    auto tape = detail::make_tape(context, context.engine.records);
    const auto variables = std::tuple_cat(detail::ModuleInput<Context, X>::make(*tape, x, input_gradient),
                                          std::tuple(Variable<Context, Others>(others, *tape)...));
    return run<X, Context>(std::move(tape), variables, std::make_index_sequence<std::tuple_size_v<decltype(variables)>>());
  }
  template <class Context, class Input, class Output, class G>
  auto backward_input(const Context& context, detail::ModuleSaved<Context, Input, Output> saved, const G& g) {
    typename Input::gradient_type gradient{};
    Input::receive(saved.input, gradient);
    detail::give(context, saved.output, g);
    saved.tape->backward(context);
    return InputGradient{std::move(gradient), detail::ModuleDeferred<Context>{std::move(saved.tape)}};
  }
  template <class Context>
  void backward_weight(const Context& context, detail::ModuleDeferred<Context> deferred) {
    deferred.tape->weights(context);
  }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }

  // The forward, whose errors and whose steps of the tape have this layer's path.
  template <class... V>
  auto forward_in(detail::Tape& tape, const V&... x) const {
    constexpr bool returns = !std::is_void_v<decltype(self().forward(x...))>;
    static_assert(
        returns,
        "weft: this Module's forward returns nothing: end it with `return y;`, y the result of operations on its inputs; "
        "see Self in this class's template arguments");
    if constexpr (!returns) {
      return detail::AlreadyRefused();
    } else {
      const detail::InLayer in(tape, tape.records() ? path_.of(self()) : std::string_view());
      try {
        return self().forward(x...);
      } catch (...) {
        detail::add_path(path_.of(self()), detail::Pass::forward);
        throw;
      }
    }
  }

  // The first of the Variables, one or several, are of the first input, an X.
  template <class X, class Context, class... V, std::size_t... I>
  auto run(detail::TapePointer tape, const std::tuple<V...>& variables, std::index_sequence<I...>) const {
    static_assert(detail::takes_variables<Self, V...>(),
                  "weft: this Module's forward cannot be called with its inputs: write `auto forward(const auto& x) const`, "
                  "public, with as many arguments as there are inputs (those of a tuple one by one), and without a context, "
                  "which each Variable has: x.context(); see Self in this function's template arguments");
    if constexpr (!detail::ForwardsVariables<Self, V...>) {
      return detail::RefusedResult();
    } else {
      auto y = forward_in(*tape, std::get<I>(variables)...);
      using Y = decltype(y);
      constexpr bool refused = detail::has_refused<Y>, right = refused || detail::is_module_output<Y>,
                     other = std::is_class_v<Y> && !AnyTensor<Y>;
      static_assert(
          right || other,
          "weft: this Module's forward returns something else than a Variable, or a std::tuple or a struct of Variables: "
          "return the result of operations on its inputs; a tensor (x.value()) has no gradient; see Self and Y in this "
          "function's template arguments");
      static_assert(
          right || !other,
          "weft: this Module's forward returns an object that is not made of Variables alone: write a class template with "
          "a parameter for each member, `template <class A, class B> struct Flow { A velocity; B pressure; };`, without "
          "constructors, private members, base classes or members of other types, and return Flow{x, y}, or return "
          "std::tuple(x, y); see Self and Y in this function's template arguments");
      if constexpr (!right || refused) {
        return detail::RefusedResult();
      } else {
        using Input = detail::ModuleInput<Context, X>;
        auto input = node_of<Input>(variables, std::make_index_sequence<detail::variables_in<X>>());
        auto output = detail::nodes_of(y);
        using Saved = detail::ModuleSaved<Context, Input, decltype(output)>;
        return Result{detail::values_of(std::move(y)), Saved{std::move(tape), std::move(input), std::move(output)}};
      }
    }
  }
  template <class Input, class... V, std::size_t... I>
  static auto node_of(const std::tuple<V...>& variables, std::index_sequence<I...>) {
    return Input::node(std::get<I>(variables)...);
  }

  detail::LayerPath path_;
};

}  // namespace weft
