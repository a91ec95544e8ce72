// SPDX-License-Identifier: Apache-2.0
#pragma once
// A value inside a Module's forward: a placed tensor (or a loss) with the tape of its call. Operations on Variables compute
// at once and record how the gradients of their operands follow from that of the result; its type is the dual of the operand's,
// and contributions are added only if they are placed alike.
//
//   auto forward(const auto& x) const { return silu(matmul(x, weight)) * x; }   // x is a Variable

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/parameter.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace operations {
// Argument-dependent lookup finds operations on Variables here, as it does those on tensors.
struct OnTape {};
}  // namespace operations

namespace detail {
template <class Context, class X>
class Constant;
}  // namespace detail

/// A value X of a Module's call under Context. Copies are handles of one value. A constant has no gradient: values of the
/// batch, and results of constants only.
template <class Context, class X>
class Variable : operations::OnTape, public detail::MembersElsewhere<Variable<Context, X>> {
 public:
  using context_type = Context;
  using tensor_type = X;

  Variable(X value, detail::ValueNode<X>* node, detail::Tape& tape) : value_(std::move(value)), node_(node), tape_(&tape) {}
  Variable(X value, detail::Tape& tape) : value_(std::move(value)), tape_(&tape) {}
  /// From an operation that was refused, so that `h = sin(h)` is one error.
  Variable(const detail::AlreadyRefused&) : tape_(nullptr) {}
  /// Refuses a value of another type.
  template <class V>
  requires(!std::is_base_of_v<Variable, V> && !std::is_base_of_v<detail::AlreadyRefused, V>) Variable& operator=(const V&) {
    static_assert(sizeof(V) == 0,
                  "weft: a value of a forward keeps its type, with the placements and the element type, and this is a value of "
                  "another type, a number or a layer: give it another name, auto y = ...; see V in this function's template "
                  "arguments");
    return *this;
  }

  /// The tensor, whose placements are in its type. Backward treats values computed from the tensor as constants.
  const X& value() const { return value_; }
  const Context& context() const { return tape_->context().template as<Context>(); }
  const Shape& shape() const { return value_.shape(); }
  std::size_t rows() const { return value_.rows(); }
  std::size_t columns() const { return value_.columns(); }
  /// Whether backward computes a gradient of this value.
  bool has_gradient() const { return node_ != nullptr; }
  /// The same value as a Constant, whose type has no gradient: backward stops here.
  detail::Constant<Context, X> detach() const {
    if constexpr (requires { value_.detach(); }) return detail::Constant<Context, X>(value_.detach(), *tape_);
    else return detail::Constant<Context, X>(value_, *tape_);
  }

  detail::ValueNode<X>* node() const { return node_; }
  detail::Tape& tape() const { return *tape_; }

 private:
  X value_;
  detail::ValueNode<X>* node_ = nullptr;
  detail::Tape* tape_;
};

namespace detail {

/// A Variable whose type has no gradient.
template <class Context, class X>
class Constant : public Variable<Context, X> {
 public:
  Constant(X value, Tape& tape) : Variable<Context, X>(std::move(value), tape) {}
};

template <class V>
inline constexpr bool is_variable = false;
template <class C, class X>
inline constexpr bool is_variable<Variable<C, X>> = true;
template <class C, class X>
inline constexpr bool is_variable<Constant<C, X>> = true;

/// Whether the type of a Variable has no gradient: whole numbers, a whole batch, and detached values. Other Variables are refused
/// as operands for which an operation has no gradient.
template <class V>
inline constexpr bool is_constant = std::is_same_v<gradient_t<typename V::tensor_type>, Nothing>;
template <class C, class X>
inline constexpr bool is_constant<Constant<C, X>> = true;

}  // namespace detail

/// A Variable of any type, in the signatures of functions that a Module's forward calls.
template <class V>
concept AnyVariable = detail::is_variable<std::remove_cvref_t<V>>;

namespace detail {

/// An operand of a recorded operation, and the function that gives its gradient from the result's: gradient(context, g). For a
/// constant it is neither kept nor called.
template <class X, class F>
class FromVariable {
 public:
  FromVariable(ValueNode<X>* node, F&& gradient) : node_(node) {
    if (node_ != nullptr) gradient_.emplace(std::move(gradient));
  }
  bool wanted() const { return node_ != nullptr; }
  template <class Context, class G>
  void give(Tape&, const Context& context, const G& g) {
    if (node_ != nullptr) node_->add(context, (*gradient_)(context, g));
  }

 private:
  ValueNode<X>* node_;
  std::optional<F> gradient_;
};
template <class C, class X, class F>
FromVariable<X, F> from(const Variable<C, X>& x, F gradient) {
  return {x.node(), std::move(gradient)};
}

/// A deferred weight gradient: add(context, parameter, g).
template <class Context, class P, class F, class G>
struct DeferredWeight : TapeStep {
  DeferredWeight(P&& to, F&& function, const G& gradient) : parameter(std::move(to)), add(std::move(function)), g(gradient) {}
  void apply(Tape& tape) { add(tape.context().as<Context>(), parameter, g); }
  P parameter;
  F add;
  G g;
};

/// A parameter as an operand: its gradient is computed with the other weight gradients, by add(context, parameter, g).
template <class P, class F>
class FromParameter {
 public:
  FromParameter(const P& parameter, F&& add) : parameter_(parameter), add_(std::move(add)) {}
  bool wanted() const { return parameter_.trainable(); }
  template <class Context, class G>
  void give(Tape& tape, const Context&, const G& g) {
    if (wanted()) tape.defer<DeferredWeight<Context, P, F, G>>(std::move(parameter_), std::move(add_), g);
  }

 private:
  P parameter_;  // a handle: a copy of a layer's parameter that a forward makes may be gone when backward comes
  F add_;
};
template <Placement... R, class F>
FromParameter<Parameter<R...>, F> from(const Parameter<R...>& parameter, F add) {
  return {parameter, std::move(add)};
}

/// The result of an operation, Y, and its operands.
template <class Context, class Y, class... From>
struct Recorded : TapeStep, ValueNode<Y> {
  explicit Recorded(From&&... operands) : from(std::move(operands)...) {}
  void apply(Tape& tape) {
    if (!*this) return;  // nothing was computed from the result
    const auto g = this->take();
    note_result<From...>(tape.context().as<Context>(), g);
    std::apply([&](auto&... operand) { (operand.give(tape, tape.context().as<Context>(), g), ...); }, from);
  }
  std::tuple<From...> from;
};

/// The result y of an operation as a Variable on the tape of x: `from` are its operands. A constant if all operands are.
template <class Context, class X, class Y, class... From>
Variable<Context, Y> record(const Variable<Context, X>& x, Y y, From... from) {
  Tape& tape = x.tape();
  note_result<From...>(x.context(), y);
  if constexpr (std::is_same_v<gradient_t<Y>, Nothing>) {
    return {std::move(y), tape};  // ids and labels have no gradient
  } else {
    if (!tape.records() || !(from.wanted() || ...)) return {std::move(y), tape};
    auto& node = tape.record<Recorded<Context, Y, From...>>(std::move(from)...);
    return {std::move(y), &node, tape};
  }
}
/// The same of a refused result, on which no later operation reports an error.
template <class Context, class X, class Y, class... From>
requires(any_refused_cut<Y>) AlreadyRefused record(const Variable<Context, X>&, Y, From...) { return {}; }

// False: compilers print From, which names the operation.
template <class... From>
inline constexpr bool has_second_derivative = false;
/// Refuses an operation inside of grad(f, x) (operations/grad.hpp), whose values are Variables of Variables: one that may be
/// differentiated again records by record_any (autograd/nested_variable.hpp).
template <class Context, class C, class X, class Y, class... From>
AlreadyRefused record(const Variable<Context, Variable<C, X>>&, Y, From...) {
  static_assert(
      has_second_derivative<From...>,
      "weft: grad(f, x): f calls an operation without a second derivative; docs/guide.md lists those that have one; see "
      "From in this function's template arguments for the operation");
  return {};
}

// A tape holds the address of a parameter; backward reads its values and adds to its gradient.
template <class X>
AlreadyRefused refused_temporary() {
  static_assert(!AnyTensor<X>,
                "weft: an operation of a Module's forward on a Parameter that is gone when backward asks for it: keep the "
                "Parameter as a member of the Module, and pass that");
  return {};
}

template <class X>
AlreadyRefused refused_whole_numbers() {
  require_real<typename X::value_type>();
  return {};
}

/// A parameter's values as a Variable beside x, for operations without a form for parameters.
template <class Context, class P, class W>
struct ParameterLeaf : TapeStep, ValueNode<W> {
  explicit ParameterLeaf(const P& of) : parameter(of) {}
  void apply(Tape& tape) {
    if (!*this) return;
    const auto add = [](const Context& context, P& to, const gradient_t<W>& g) { to.accumulate(context, g); };
    tape.defer<DeferredWeight<Context, P, decltype(add), gradient_t<W>>>(std::move(parameter), std::move(add), this->take());
  }
  P parameter;
};

}  // namespace detail

/// A parameter as a Variable beside x, placed according to x's placements and the parameter's rules: `exp(beside(x, rate)) * x`.
/// Most operations take a Parameter itself.
template <class C, class X, Placement... R>
auto beside(const Variable<C, X>& x, const Parameter<R...>& parameter) {
  using P = Parameter<R...>;
  auto w = [&] {
    if constexpr (detail::Real<typename X::value_type>) return parameter.for_operand(x.value());
    else return parameter.for_operand(x.context(), x.value());
  }();
  using W = decltype(w);
  if (!parameter.trainable() || !x.tape().records()) return Variable<C, W>(std::move(w), x.tape());
  auto& node = x.tape().template record<detail::ParameterLeaf<C, P, W>>(parameter);
  return Variable<C, W>(std::move(w), &node, x.tape());
}
template <class C, class X, Placement... R>
detail::AlreadyRefused beside(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}

}  // namespace weft
