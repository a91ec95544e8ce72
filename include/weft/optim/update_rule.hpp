// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of an update rule, and error messages for types that violate it: a wrong rule gives one error that names its
// member. A user's own optimizer is Optimizer<Rule>:
//
//   struct SignRule {
//     struct Options { double learning_rate = 1e-4, clip = 0; };
//     static constexpr bool elementwise = true;   // the update of an element depends on no other
//     static constexpr int buffers = 0;           // state between steps, each as large as the parameter
//     template <class A>
//     static Descent<A> element(const ParameterState&, const Options&, double learning_rate, std::uint64_t step);
//   };
//
// `element` returns the arithmetic of an element in the type A of updates (kernels/update_elements.hpp). weft handles gradients,
// their scale and master copies. On GPUs it updates all parameters with equal elements in one launch, before the host has the
// norm. A rule with its own kernels writes an update of one slot instead:
//
//     template <class P, class Exec>
//     static void update(Device<Exec>& device, optim::Slot& slot, const Options& options, double learning_rate,
//                        double gradient_scale, std::uint64_t step);
//
// A rule that needs whole rows or matrices declares it, and weft gathers them in every layout. Its update has three parts; only
// the second one receives whole matrices:
//
//   struct Orthogonal {
//     struct Options { double learning_rate = 1e-3, clip = 0; };
//     static constexpr optim::Needs needs = optim::Needs::matrix;
//     static constexpr int buffers = 1, sent = 1, returned = 1;   // arrays that are kept, gathered, and returned
//     // Writes the arrays to be gathered, [sent, kept], from the gradient, the buffers and the parameter.
//     template <class P, class Exec>
//     static void prepare(Device<Exec>&, optim::Slot&, const Options&, double gradient_scale, std::uint64_t step,
//                         accumulate_t<P>* arrays);
//     // Transforms the whole arrays, [sent, rows, columns]; the first `returned` are returned.
//     template <class A, class Exec>
//     static void transform(Device<Exec>&, const optim::Matrix& matrix, const Options&, A* arrays);
//     // Updates the parameter from the returned arrays, [returned, kept].
//     template <class P, class Exec>
//     static void apply(Device<Exec>&, optim::Slot&, const Options&, double learning_rate, std::uint64_t step,
//                       const accumulate_t<P>* arrays);
//   };
//
// A rule of whole matrices can keep arrays that have not the shape of the parameter, such as a moment for each row. They exist
// once, on the rank that transforms the matrix; checkpoints take them into any layout:
//
//     static constexpr std::array<std::string_view, 2> home_names{"rows", "columns"};     // names in checkpoints
//     static std::array<std::size_t, 2> home_elements(const ParameterState&);             // elements, initially zero; 0: none
//
// `transform` gets them as matrix.array<A>(0) and matrix.array<A>(1), with the step as matrix.step, from 1.

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <weft/core/has_member.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/optim/slot.hpp>

namespace weft::optim {

/// The elements on which a rule's update of an element depends.
enum class Needs {
  elements,  ///< only that element: ranks may hold any pieces
  rows,      ///< its row; a vector is one row
  matrix,    ///< the whole parameter, dim 0 by all others
};

/// The argument of Rule::transform: a whole parameter, or some of its rows.
struct Matrix {
  const ParameterState* state;
  std::size_t rows, columns;
  std::uint64_t step = 0;                           ///< of this parameter, from 1
  std::span<const weft::detail::Buffer> home = {};  ///< see Rule::home_names

  /// Array k of Rule::home_names; null if it has no elements.
  template <class A>
  A* array(std::size_t k) const {
    return static_cast<A*>(home[k].get());
  }
};

namespace detail {

WEFT_HAS_MEMBER(needs)
WEFT_HAS_MEMBER(update)
WEFT_HAS_MEMBER(element)
WEFT_HAS_MEMBER(check)
WEFT_HAS_MEMBER(buffers)
WEFT_HAS_MEMBER(elementwise)

// `buffers` is a member of each rule object, but should be a static member.
template <class Rule>
concept BuffersOfAnObject = std::is_member_object_pointer_v<decltype(&Rule::buffers)>;
template <class Rule>
concept ElementwiseOfAnObject = std::is_member_object_pointer_v<decltype(&Rule::elementwise)>;
template <class Rule>
concept NeedsOfAnObject = std::is_member_object_pointer_v<decltype(&Rule::needs)>;

enum class RuleFault { none, no_options, no_learning_rate, no_clip, no_buffers, buffers, elementwise, needs, check };

template <class Rule>
constexpr RuleFault fault_of_rule() {
  if constexpr (!requires { typename Rule::Options; }) {
    return RuleFault::no_options;
  } else {
    using Options = typename Rule::Options;
    if constexpr (!requires(const Options& options) {
                    { options.learning_rate } -> std::convertible_to<double>;
                  })
      return RuleFault::no_learning_rate;
    else if constexpr (!requires(const Options& options) {
                         { options.clip } -> std::convertible_to<double>;
                       })
      return RuleFault::no_clip;
    else if constexpr (BuffersOfAnObject<Rule>) return RuleFault::buffers;
    else if constexpr (!requires { typename std::integral_constant<unsigned, Rule::buffers>; })
      return has_buffers<Rule>() ? RuleFault::buffers : RuleFault::no_buffers;
    else if constexpr (ElementwiseOfAnObject<Rule>) return RuleFault::elementwise;
    else if constexpr (!requires { typename std::bool_constant<Rule::elementwise>; } && has_elementwise<Rule>())
      return RuleFault::elementwise;
    else if constexpr (NeedsOfAnObject<Rule>) return RuleFault::needs;
    else if constexpr (!requires { typename std::integral_constant<Needs, Rule::needs>; } && has_needs<Rule>())
      return RuleFault::needs;
    else if constexpr (!requires(const Options& options) { Rule::check(options); } && has_check<Rule>()) return RuleFault::check;
    else return RuleFault::none;
  }
}

template <class Rule>
struct RuleOptions {
  struct type {
    double learning_rate = 0, clip = 0;
  };
};
template <class Rule>
requires requires { typename Rule::Options; }
struct RuleOptions<Rule> {
  using type = typename Rule::Options;
};

/// True if a rule declares its needs. Otherwise it is assumed to need whole parameters, and is not given them.
template <class Rule>
inline constexpr bool says_needs = requires {
  requires Rule::elementwise;
};
template <class Rule>
requires requires { Rule::needs; }
inline constexpr bool says_needs<Rule> = true;
template <class Rule>
inline constexpr Needs needs_of = says_needs<Rule> ? Needs::elements : Needs::matrix;
template <class Rule>
requires requires { Rule::needs; }
inline constexpr Needs needs_of<Rule> = Rule::needs;
/// True if rows or matrices are gathered for a rule.
template <class Rule>
inline constexpr bool is_served = says_needs<Rule>&& needs_of<Rule> != Needs::elements;
/// True if a rule keeps arrays at the homes of matrices.
template <class Rule>
inline constexpr bool has_home = requires {
  Rule::home_names;
};
/// True if some parameters are updated element by element: an ordinary rule, or a rule with two kinds of updates.
template <class Rule>
inline constexpr bool has_elements = !is_served<Rule> || requires {
  Rule::rules;
};

template <class Rule>
inline constexpr int sent_by = 1;
template <class Rule>
requires requires { Rule::sent; }
inline constexpr int sent_by<Rule> = Rule::sent;
template <class Rule>
inline constexpr int returned_to = 1;
template <class Rule>
requires requires { Rule::returned; }
inline constexpr int returned_to<Rule> = Rule::returned;

/// The buffers that a rule keeps for a parameter. A rule with two kinds of updates may keep fewer for one of them.
template <class Rule>
constexpr std::size_t rule_buffers(bool whole) {
  if constexpr (requires { Rule::whole_buffers; })
    if (whole) return std::size_t(Rule::whole_buffers);
  return std::size_t(Rule::buffers);
}

template <class Rule, class Exec>
using Update = void (*)(Device<Exec>&, Slot&, const typename Rule::Options&, double, double, std::uint64_t);

/// A rule's arithmetic of an element for parameters of P.
template <class Rule, class P>
using ElementOf = decltype(Rule::template element<accumulate_t<P>>(
    std::declval<const ParameterState&>(), std::declval<const typename Rule::Options&>(), 0.0, std::uint64_t()));

}  // namespace detail

/// A rule that Optimizer accepts. Its update is checked once the element type is known: see Updates.
template <class Rule>
concept UpdateRule = detail::fault_of_rule<Rule>()
== detail::RuleFault::none;

/// Rule has an update of one slot for parameters of element type P.
template <class Rule, class P, class Exec>
concept UpdatesSlots = requires {
  static_cast<detail::Update<Rule, Exec>>(&Rule::template update<P, Exec>);
};

/// Rule has the arithmetic of an element for parameters of element type P. Equal elements are updated together.
template <class Rule, class P>
concept UpdatesElements = requires(const ParameterState& state, const typename Rule::Options& options,
                                   detail::ElementOf<Rule, P> element) {
  requires std::is_trivially_copyable_v<detail::ElementOf<Rule, P>>;
  requires detail::ElementOf<Rule, P>::buffers == Rule::buffers;
  { element == element } -> std::convertible_to<bool>;
};

/// Rule can update parameters of element type P.
template <class Rule, class P, class Exec>
concept Updates = UpdatesSlots<Rule, P, Exec> || UpdatesElements<Rule, P>;

/// Rule has the three parts of an update that needs whole rows or matrices.
template <class Rule, class P, class Exec>
concept Transforms = requires {
  static_cast<void (*)(Device<Exec>&, Slot&, const typename Rule::Options&, double, std::uint64_t, accumulate_t<P>*)>(
      &Rule::template prepare<P, Exec>);
  static_cast<void (*)(Device<Exec>&, const Matrix&, const typename Rule::Options&, accumulate_t<P>*)>(
      &Rule::template transform<accumulate_t<P>, Exec>);
  static_cast<void (*)(Device<Exec>&, Slot&, const typename Rule::Options&, double, std::uint64_t, const accumulate_t<P>*)>(
      &Rule::template apply<P, Exec>);
};

namespace detail {

/// Reports why Rule is no UpdateRule.
template <class Rule>
constexpr void refuse_rule() {
  constexpr RuleFault fault = fault_of_rule<Rule>();
  static_assert(fault != RuleFault::no_options,
                "weft: this update rule has no Options: write `struct Options { double learning_rate = 1e-3, clip = 0; };` in "
                "it, with its further options; see Rule in this function's template arguments");
  static_assert(fault != RuleFault::no_learning_rate,
                "weft: this update rule's Options have no learning_rate, which step() takes where it is given none: write "
                "`double learning_rate = 1e-3;`; see Rule in this function's template arguments");
  static_assert(fault != RuleFault::no_clip,
                "weft: this update rule's Options have no clip, the largest global gradient norm: write `double clip = 0;`, and "
                "0 turns clipping off; see Rule in this function's template arguments");
  static_assert(fault != RuleFault::no_buffers,
                "weft: this update rule has no buffers, the number of arrays that it keeps beside each parameter: write `static "
                "constexpr int buffers = 1;` (0 for none, 2 for two moments); see Rule in this function's template arguments");
  static_assert(fault != RuleFault::buffers,
                "weft: this update rule's buffers is not a constant of at least 0: write `static constexpr int buffers = 1;`; "
                "see Rule in this function's template arguments");
  static_assert(fault != RuleFault::elementwise,
                "weft: this update rule's elementwise is not a constant, so it is never read: write `static constexpr bool "
                "elementwise = true;`; see Rule in this function's template arguments");
  static_assert(fault != RuleFault::needs,
                "weft: this update rule's needs is not a constant of type Needs, so it is never read: write `static constexpr "
                "optim::Needs needs = optim::Needs::matrix;`; see Rule in this function's template arguments");
  static_assert(fault != RuleFault::check,
                "weft: this update rule's check cannot be called with its Options, so nothing would be checked: write `static "
                "void check(const Options& options)`; see Rule in this function's template arguments");
}

/// Reports why Rule does not update parameters of P.
template <class Rule, class P, class Exec>
constexpr void refuse_update() {
  constexpr bool there = has_update<Rule>(), by_element = !there && has_element<Rule>();
  static_assert(
      !by_element,
      "weft: this update rule's element is not the arithmetic of an update in the model's accumulate type A: write `template "
      "<class A> static Element<A> element(const ParameterState& state, const Options& options, double learning_rate, "
      "std::uint64_t step)`, static and public, whose Element is trivially copyable, has `static constexpr int buffers`, as many "
      "as the rule, and `bool operator==(const Element&) const = default`; see Rule and P in this function's template arguments");
  static_assert(there || by_element,
                "weft: this update rule has no update: write `template <class P, class Exec> static void update(Device<Exec>& "
                "device, Slot& slot, const Options& options, double learning_rate, double gradient_scale, std::uint64_t step)`; "
                "see Rule in this function's template arguments");
  static_assert(
      !there,
      "weft: this update rule's update is not one for parameters of the model's element type P: write `template <class P, class "
      "Exec> static void update(Device<Exec>& device, Slot& slot, const Options& options, double learning_rate, double "
      "gradient_scale, std::uint64_t step)`, static and public; see Rule and P in this function's template arguments");
}

/// Reports that Rule lacks the parts of an update that needs whole rows or matrices.
template <class Rule, class P, class Exec>
constexpr void refuse_parts() {
  constexpr bool there = Transforms<Rule, P, Exec>;
  static_assert(
      there,
      "weft: this update rule needs whole rows or matrices (its `needs`), so its update has three parts, and one of them "
      "is missing, or is not one for parameters of the model's element type P: write prepare, transform and apply as in "
      "optim/update_rule.hpp, static and public; see Rule and P in this function's template arguments");
}

}  // namespace detail

}  // namespace weft::optim
