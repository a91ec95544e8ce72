// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a wrapper's hooks, with an error message for each way to miss it. Events are virtual functions with a body, so a
// member of the same name with other arguments compiles as an unrelated function and is never called. (With `override` the
// language refuses it.)
//
//   static_assert(StepHooks<MyHooks>);

#include <concepts>
#include <type_traits>

#include <weft/engine/hooks.hpp>

namespace weft::detail {

namespace hooks_check {

// The class of a member function pointer, and the function's type.
template <class F>
struct Parts {
  using owner = void;
  using type = void;
};
template <class R, class C, class... A>
struct Parts<R (C::*)(A...)> {
  using owner = C;
  using type = R(A...);
};
template <class R, class C, class... A>
struct Parts<R (C::*)(A...) noexcept> : Parts<R (C::*)(A...)> {};
template <class R, class C, class... A>
struct Parts<R (C::*)(A...) const> {
  using owner = C;
  using type = R(A...) const;
};
template <class R, class C, class... A>
struct Parts<R (C::*)(A...) const noexcept> : Parts<R (C::*)(A...) const> {};

struct Found {
  bool hidden = false, overridden = false;
};
template <class H, class Mine, class Base>
constexpr void look(Found& found) {
  if constexpr (!std::is_same_v<typename Parts<Mine>::owner, Hooks>) {
    if constexpr (std::is_same_v<typename Parts<Mine>::type, typename Parts<Base>::type>) found.overridden = true;
    else found.hidden = true;
  }
}

// A private override counts as overridden; so do several functions of one name, which cannot be distinguished.
#define WEFT_LOOK(event)                                                                               \
  if constexpr (requires { &H::event; }) look<H, decltype(&H::event), decltype(&Hooks::event)>(found); \
  else found.overridden = true;

template <class H>
constexpr Found find() {
  Found found;
  WEFT_LOOK(allocate)
  WEFT_LOOK(prepare)
  WEFT_LOOK(sums_data)
  WEFT_LOOK(gathers_children)
  WEFT_LOOK(begin_sums)
  WEFT_LOOK(reduces_each_micro_batch)
  WEFT_LOOK(meets_each_micro_batch)
  WEFT_LOOK(begin)
  WEFT_LOOK(before_forward)
  WEFT_LOOK(after_forward)
  WEFT_LOOK(before_backward)
  WEFT_LOOK(after_backward)
  WEFT_LOOK(open_gradient)
  WEFT_LOOK(lay_out_gradients)
  WEFT_LOOK(gradients_ready)
  WEFT_LOOK(discard_gradients)
  WEFT_LOOK(check_sums)
  WEFT_LOOK(finish)
  return found;
}

#undef WEFT_LOOK

}  // namespace hooks_check

/// A class derived from Hooks that overrides at least one event and hides none.
template <class H>
concept StepHooks = std::derived_from<H, Hooks> && !hooks_check::find<H>().hidden && hooks_check::find<H>().overridden;

/// Prints why H does not meet StepHooks, if it does not.
template <class H>
struct CheckedHooks {
  static constexpr bool said = true;
  static constexpr hooks_check::Found found = hooks_check::find<H>();
  static_assert(!found.hidden,
                "weft: these hooks have a function of the name of an event that takes or returns something else, or is const "
                "where the event is not, so it is never called: write it as in weft::detail::Hooks, such as `void "
                "gradients_ready(Unit& unit) override`; see H in this class's template arguments");
  static_assert(
      found.hidden || found.overridden,
      "weft: these hooks have no event, so they are never called (a misspelled one?): override one of weft::detail::Hooks, such "
      "as `void gradients_ready(Unit& unit) override`; see H in this class's template arguments");
};

}  // namespace weft::detail
