// SPDX-License-Identifier: Apache-2.0
#pragma once
// The errors of weft. Every message says what, why and where, with the numbers, on one line; each class maps to one exit
// code of `runtime::run`, so that a shell script can tell a wrong layout from a rank that died.
//
//   throw LayoutError("heads(6) % tp(4) != 0: a rank holds whole heads; use tp 1, 2, 3 or 6");
//   throw_error<LayoutError>({"heads(", heads, ") % tp(", tp, ") != 0"});

#include <stdexcept>
#include <string>

#include <weft/core/text.hpp>

namespace weft {

/// Base of all errors that weft throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, int exit_code = 1) : std::runtime_error(detail::joined({"weft: ", what})), exit_code_(exit_code) {}
  /// What `runtime::run` returns when this error ends the program.
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Options, files or arguments that cannot be: exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what) : Error(what, 2) {}
};

/// A mesh or model layout that cannot be (degrees, divisibility): exit code 2. Thrown before any communication and with
/// the same text on every rank.
class LayoutError : public Error {
 public:
  explicit LayoutError(const std::string& what) : Error(what, 2) {}
};

/// A file that state was to be offloaded to cannot be made, has no room, or cannot be read or written: exit code 2. The training
/// state is what it was before the call.
class StorageError : public Error {
 public:
  explicit StorageError(const std::string& what) : Error(what, 2) {}
};

/// A memory space that has no room for what is asked of it. Nothing was changed.
class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& what) : Error(what) {}
};

/// Tensors whose shapes do not fit the operation.
class ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& what) : Error(what) {}
};

/// A gradient that still owes a sum over an axis when the step ends, or is reduced while it does.
class UnreducedGradientError : public Error {
 public:
  explicit UnreducedGradientError(const std::string& what) : Error(what) {}
};

/// The training run cannot go on (ten steps in a row without a finite gradient): exit code 3.
class DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& what) : Error(what, 3) {}
};

/// Throws an E that says these words. One call where the error is found: headers use it throughout.
template <class E>
[[noreturn]] WEFT_COLD void throw_error(detail::Words words) {
  throw E(detail::joined(words));
}

}  // namespace weft
