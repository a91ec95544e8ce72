// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test for a member by its name, for the messages about a refused class. A concept only shows that a call is impossible; a
// message should distinguish a missing member from one that is private, not const, or takes other arguments.
//
//   WEFT_HAS_MEMBER(forward)
//   static_assert(has_forward<Linear<>>());
//
// A second base class also has a member of that name. A name in both bases is ambiguous, independent of the member's kind and
// access.

#include <type_traits>

#include <weft/core/standard.hpp>

#define WEFT_HAS_MEMBER(name)                                                       \
  struct Named_##name {                                                             \
    int name;                                                                       \
  };                                                                                \
  template <class T>                                                                \
  struct Beside_##name : T, Named_##name {};                                        \
  template <class T>                                                                \
  constexpr bool has_##name() {                                                     \
    if constexpr (std::is_class_v<T> && !std::is_final_v<T>) {                      \
      return !requires { &Beside_##name<T>::name; };                                \
    } else {                                                                        \
      return std::is_class_v<T>; /* nothing can be said of a class that is final */ \
    }                                                                               \
  }
