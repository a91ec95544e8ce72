// SPDX-License-Identifier: Apache-2.0
#pragma once
// System calls that a signal may interrupt, repeated until they end for another reason: a program's signal handlers and timers
// must not cause errors of files.
//
//   const int file = detail::uninterrupted([&] { return ::open(path, flags); });   // < 0: errno is not EINTR

#include <cerrno>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// The result of a call that returns a negative number and sets errno.
template <class F>
auto uninterrupted(F&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The result of a call that returns its error number, such as posix_fallocate.
template <class F>
int uninterrupted_error(F&& call) {
  int error = call();
  while (error == EINTR) error = call();
  return error;
}

}  // namespace weft::detail
