// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header gloo/common/memory.h, which Debian's libgloo-dev does not install although its headers unbound_buffer.h and pair.h
// of gloo/transport/tcp include it. It has the names that these need. weft never constructs or destroys these types: libgloo does
// both, with its own definitions, and the members of these types come last in their classes, so no offset that weft uses depends
// on them. An installed Gloo that has the file is used with its own: this folder is searched only if the file is missing.

#include <memory>

namespace gloo {

template <class T>
class WeakNonOwningPtr;

template <class T>
class NonOwningPtr;

template <class T>
class ShareableNonOwningPtr {
 public:
  ~ShareableNonOwningPtr();
};

template <class T>
class WeakNonOwningPtr {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>&);
  std::weak_ptr<T> pointer;
};

}  // namespace gloo
