// SPDX-License-Identifier: Apache-2.0
#pragma once
// Debian's libgloo-dev installs gloo/transport/tcp/unbound_buffer.h but not this file, which it includes. These are the names
// that it needs. Nothing here is ever constructed or destroyed by weft: libgloo does both, with its own definitions; the one
// member of these types is the last of its class, so no offset that weft uses depends on them. A Gloo that installs the file
// is used with its own: this folder is searched only where it is missing.

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
