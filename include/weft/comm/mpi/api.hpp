// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thin layer over the MPI library: every return code checked, counts of 64 bits (MPI 4) or checked to fit an int, types by
// DataType.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/mpi/library.hpp>
#include <weft/comm/operation.hpp>
#include <weft/core/checked.hpp>

namespace weft::comm::mpi {

#if MPI_VERSION >= 4
using Count = MPI_Count;
using Offset = MPI_Aint;
#define WEFT_MPI(function) MPI_##function##_c
#else
using Count = int;
using Offset = int;
#define WEFT_MPI(function) MPI_##function
#endif

/// Throws Error with MPI's own text unless `code` is success.
inline void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(std::string(function) + " failed with code " + std::to_string(code) + ": " +
              std::string(text, std::size_t(length)));
}

/// A count in this MPI's count type. Throws Error if it does not fit: before MPI 4 the limit is 2^31 - 1 elements.
inline Count to_count(std::size_t count) {
  return weft::detail::narrow<Count>(count, "MPI (before version 4) counts in int; the number of elements");
}
inline Offset to_offset(std::size_t offset) {
  return weft::detail::narrow<Offset>(offset, "MPI (before version 4) counts in int; the offset in elements");
}

/// bfloat16 travels as 16 bits; MPI never adds it.
inline MPI_Datatype type_of(DataType type) {
  switch (type) {
    case DataType::int8: return MPI_INT8_T;
    case DataType::uint8: return MPI_UINT8_T;
    case DataType::int16: return MPI_INT16_T;
    case DataType::uint16: return MPI_UINT16_T;
    case DataType::int32: return MPI_INT32_T;
    case DataType::uint32: return MPI_UINT32_T;
    case DataType::int64: return MPI_INT64_T;
    case DataType::uint64: return MPI_UINT64_T;
    case DataType::float16:
    case DataType::bfloat16: return MPI_UINT16_T;
    case DataType::float32: return MPI_FLOAT;
    case DataType::float64: return MPI_DOUBLE;
  }
  throw Error("mpi: unknown DataType");
}

inline MPI_Op operation_of(Reduction reduction) {
  return reduction == Reduction::max ? MPI_MAX : reduction == Reduction::min ? MPI_MIN : MPI_SUM;
}

/// Counts and displacements of adjacent pieces, in the form that the `v` functions take.
struct Pieces {
  std::vector<Count> counts;
  std::vector<Offset> offsets;

  void assign(std::span<const std::size_t> sizes) {
    std::size_t offset = 0;
    counts.clear();
    offsets.clear();
    for (const std::size_t size : sizes) {
      counts.push_back(to_count(size));
      offsets.push_back(to_offset(offset));
      offset += size;
    }
  }
};

/// The operations that an error has left to MPI, which takes few back.
struct Leftovers {
  /// The name of an operation that any later call of MPI, on any communicator, may continue and write to its buffers. So weft
  /// calls MPI no more: its operations throw, and a program that weft started ends by MPI_Abort. Empty: none.
  std::string writes;
  /// The name of an operation whose send buffers MPI may still read, if a rank receives them. A process that ends calls MPI no
  /// more; one that continues has agreed with the others that all of them give the operation up.
  std::string reads;
  std::vector<std::shared_ptr<void>> memory;  ///< weft's own, which MPI may use without limit
};

/// Those of this process.
inline Leftovers& leftovers() {
  static auto& left = *new Leftovers;  // MPI may outlive static objects
  return left;
}

/// Polls for a moment: true once f() is.
template <class F>
bool soon(F&& f) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  do
    if (f()) return true;
  while (std::chrono::steady_clock::now() < end);
  return false;
}

/// Takes back receives that nothing has come for yet; a message in flight has a moment to arrive. True if MPI writes to
/// none of their buffers any more.
inline bool take_back(std::span<MPI_Request> receives) {
  for (MPI_Request& request : receives)
    if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) != MPI_SUCCESS) return false;
  return soon([&] {
    bool all = true;
    for (MPI_Request& request : receives) {
      int done = 1;
      if (request != MPI_REQUEST_NULL && MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      all = all && done != 0;
    }
    return all;
  });
}

/// The ranks in `world` of the `size` ranks of `of`.
inline std::vector<int> ranks_in(MPI_Comm world, MPI_Comm of, int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size)), found(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group from = MPI_GROUP_NULL, to = MPI_GROUP_NULL;
  check(MPI_Comm_group(of, &from), "MPI_Comm_group");
  check(MPI_Comm_group(world, &to), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(from, size, ranks.data(), to, found.data()), "MPI_Group_translate_ranks");
  check(MPI_Group_free(&from), "MPI_Group_free");
  check(MPI_Group_free(&to), "MPI_Group_free");
  return found;
}

/// An owned communicator whose errors are returned as codes.
class Handle {
 public:
  Handle() = default;
  /// Takes ownership of `comm`.
  explicit Handle(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  static Handle duplicate(MPI_Comm of) {
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(of, &comm), "MPI_Comm_dup");
    return Handle(comm);
  }
  Handle(Handle&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Handle() {
    int finalized = 0;
    // Freeing is collective: a rank that is on its way out with an error would wait for those that are not.
    if (comm_ == MPI_COMM_NULL || std::uncaught_exceptions() > 0 || !leftovers().writes.empty() ||
        MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
      return;
    int arrived = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || arrived != 0)
      return;  // leave()
    if (const int code = MPI_Comm_free(&comm_); code != MPI_SUCCESS)
      std::fprintf(stderr, "weft: MPI_Comm_free failed with code %d\n", code);
  }
  MPI_Comm get() const { return comm_; }
  /// Leaves the communicator to the end of the program. One that is freed while messages to it are in flight may lose those of
  /// other communicators, too (seen with Open MPI 4.1.4: a later barrier of all ranks never ended).
  void leave() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace weft::comm::mpi
