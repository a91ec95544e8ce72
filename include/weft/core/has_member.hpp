// SPDX-License-Identifier: Apache-2.0
#pragma once
// A question to a class that was refused: does it have a member of this name at all? A concept says only that a call is not possible;
// a message should tell a member that is missing from one that is private, not const, or takes something else.
//
//   WEFT_HAS_MEMBER(forward)
//   static_assert(has_forward<Linear<>>());
//
// A second base has a member of the name, too: what both have is ambiguous, whatever it is and whoever may call it.

#include <type_traits>

#include <weft/core/standard.hpp>

#define WEFT_HAS_MEMBER(name)                                                              \
  struct Named_##name {                                                                    \
    int name;                                                                              \
  };                                                                                       \
  template <class T>                                                                       \
  struct Beside_##name : T, Named_##name {};                                               \
  template <class T>                                                                       \
  constexpr bool has_##name() {                                                            \
    if constexpr (std::is_class_v<T> && !std::is_final_v<T>) {                             \
      return !requires { &Beside_##name<T>::name; };                                       \
    } else {                                                                               \
      return std::is_class_v<T>; /* nothing can be said of a class that is final */        \
    }                                                                                      \
  }
