// SPDX-License-Identifier: Apache-2.0
#pragma once
// The errors of weft. Every message gives what, why and where, with the numbers, on one line. Each class has an exit code, which
// `runtime::run` returns, so a shell script can distinguish a wrong layout from a dead rank.
//
//   throw LayoutError("heads(6) % tp(4) != 0: a rank holds whole heads; use tp 1, 2, 3 or 6");
//   throw_error<LayoutError>({"heads(", heads, ") % tp(", tp, ") != 0"});

#include <cerrno>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>

namespace weft {

/// Base of all errors that weft throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, int exit_code = 1)
      : std::runtime_error(detail::joined({"weft: ", what})), exit_code_(exit_code) {}
  /// The exit code of `runtime::run` if this error ends the program.
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// An impossible option, file or argument: exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what) : Error(what, 2) {}
};

/// An impossible layout of a mesh or model (degrees, divisibility): exit code 2. Thrown before any communication, with the same
/// text on every rank.
class LayoutError : public Error {
 public:
  explicit LayoutError(const std::string& what) : Error(what, 2) {}
};

/// The exit code for a system call that failed with this errno: 1 if a resource is exhausted or fails (a full disk, a quota, a
/// failing device, no memory or descriptors, a closed pipe), 2 if the file or folder is unusable.
constexpr int exit_code_of_errno(int error) {
  for (const int of_machine : {ENOSPC, EDQUOT, EFBIG, EIO, ENOMEM, EMFILE, ENFILE, EPIPE})
    if (error == of_machine) return 1;
  return 2;
}

/// A failure of the file that holds offloaded state. Exit code 1 if there is no space or the device fails, 2 if the file cannot
/// be created at this path. The training state is the same as before the call.
class StorageError : public Error {
 public:
  explicit StorageError(const std::string& what, int exit_code = 1) : Error(what, exit_code) {}
};

/// A memory space is too full for a request. Nothing was changed.
class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& what) : Error(what) {}
};

/// Tensor shapes that are invalid for the operation.
class ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& what) : Error(what) {}
};

/// A gradient that lacks a sum over an axis when the step ends, or a reduction of such a gradient.
class UnreducedGradientError : public Error {
 public:
  explicit UnreducedGradientError(const std::string& what) : Error(what) {}
};

/// A program that ended inside a wait after a stop request (Ctrl-C, SIGTERM): exit code 130, the same as after an orderly end on
/// such a request.
class InterruptedError : public Error {
 public:
  static constexpr int code = 130;
  explicit InterruptedError(const std::string& what) : Error(what, code) {}
};

/// A training run that cannot continue (ten steps in a row without a finite gradient): exit code 3.
class DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& what) : Error(what, 3) {}
};

/// Ranks that computed different bits of one micro-batch (ModelOptions::numerics.recheck_every): exit code 4. The step is not
/// applied.
class CorruptionError : public Error {
 public:
  CorruptionError(const std::string& what, std::vector<int> ranks, bool decided)
      : Error(what, 4), ranks_(std::move(ranks)), decided_(decided) {}
  /// The ranks of the mesh that are wrong, or if that is not decided, those of which at least one is.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// Whether all of ranks() are known to be wrong.
  bool decided() const noexcept { return decided_; }

 private:
  std::vector<int> ranks_;
  bool decided_;
};

/// Throws an E with these words as its message: one call at the place of the error.
template <class E>
[[noreturn]] WEFT_COLD void throw_error(detail::Words words) {
  throw E(detail::joined(words));
}

}  // namespace weft
