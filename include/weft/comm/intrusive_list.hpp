// SPDX-License-Identifier: Apache-2.0
#pragma once
// Objects in a row, linked through a member of their own: what waits and what is under way, in the order in which it began. The
// objects belong to others; coming and going needs no memory.

#include <weft/core/standard.hpp>

namespace weft::comm {

template <class T, T* T::*next>
class IntrusiveList {
 public:
  T* first() const { return first_; }
  void append(T& object) {
    object.*next = nullptr;
    *place_of(nullptr) = &object;
  }
  /// Nothing if it is not in the row.
  void remove(T& object) {
    if (T** place = place_of(&object); *place != nullptr) *place = object.*next;
  }

 private:
  T** place_of(T* object) {
    T** place = &first_;
    while (*place != object && *place != nullptr) place = &((*place)->*next);
    return place;
  }
  T* first_ = nullptr;
};

}  // namespace weft::comm
