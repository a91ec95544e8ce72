// SPDX-License-Identifier: Apache-2.0
#pragma once
// A list whose objects are linked through a member of their own, so that adding and removing an object needs no memory. It keeps
// waiting and running operations in the order of their start; the objects belong to others.
//
//   IntrusiveList<Running, &Running::next> under_way;

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
  /// Removes the object; does nothing if it is not in the list.
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
