// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header gloo/common/memory.h, which Debian's libgloo-dev does not install although its gloo/transport/tcp/unbound_buffer.h
// includes it. It has the names that unbound_buffer.h needs. weft never constructs or destroys these types: libgloo does both,
// with its own definitions, and the one member of these types is the last of its class, so no offset that weft uses depends on
// them. An installed Gloo that has the file is used with its own: this folder is searched only if the file is missing.

#include <memory>

namespace gloo {

template <class T>
class WeakNonOwningPtr;

template <class T>
class ShareableNonOwningPtr {
 public:
  ~ShareableNonOwningPtr();
};

template <class T>
class WeakNonOwningPtr {
 public:
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>&);
  std::weak_ptr<T> pointer;
};

}  // namespace gloo
