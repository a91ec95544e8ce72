// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thin layer over the NCCL library: every return code checked, types by DataType, and grouped calls that take the open group as
// an argument.

#include <nccl.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <weft/comm/errors.hpp>
#include <weft/comm/operation.hpp>
#include <weft/core/text.hpp>
#include <weft/device/cuda/runtime.hpp>

static_assert(NCCL_VERSION_CODE >= 21800, "weft needs NCCL 2.18 or newer (ncclCommSplit)");

namespace weft::comm::nccl {

/// Throws Error with NCCL's own text unless `code` is success or "in progress" (communicators here do not block).
inline void check(ncclResult_t code, const char* function, ncclComm_t comm = nullptr) {
  if (code == ncclSuccess || code == ncclInProgress) [[likely]]
    return;
  const char* last = ncclGetLastError(comm);
  throw_error<Error>({"nccl: ", function, " failed: ", ncclGetErrorString(code), last == nullptr || *last == '\0' ? "" : ": ",
                      last == nullptr ? "" : last});
}

/// check for places that must not throw (destructors): one line on stderr.
inline void report(ncclResult_t code, const char* function) noexcept {
  if (code == ncclSuccess || code == ncclInProgress) [[likely]]
    return;
  std::fprintf(stderr, "weft: nccl: %s failed: %s\n", function, ncclGetErrorString(code));
}

/// An error's text without the common prefix of all errors, for use inside another message.
inline std::string_view words_of(const std::exception& error) {
  const std::string_view text = error.what();
  return text.substr(0, 6) == "weft: " ? text.substr(6) : text;
}

/// True if NCCL can reduce this type; it can move every type.
constexpr bool reducible(DataType type) { return type != DataType::int16 && type != DataType::uint16; }

/// The type of a reduction.
inline ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::int8: return ncclInt8;
    case DataType::uint8: return ncclUint8;
    case DataType::int32: return ncclInt32;
    case DataType::uint32: return ncclUint32;
    case DataType::int64: return ncclInt64;
    case DataType::uint64: return ncclUint64;
    case DataType::float16: return ncclFloat16;
    case DataType::bfloat16: return ncclBfloat16;
    case DataType::float32: return ncclFloat32;
    case DataType::float64: return ncclFloat64;
    case DataType::int16:
    case DataType::uint16: break;
  }
  throw_error<UsageError>({"nccl: no reduction of ", name_of(type)});
}

inline ncclRedOp_t operation_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return ncclSum;
    case Reduction::max: return ncclMax;
    case Reduction::min: return ncclMin;
    case Reduction::average: return ncclAvg;
  }
  return ncclSum;
}

/// "2.28.9", from the number that ncclGetVersion returns.
inline std::string version_text(int code) {
  return weft::detail::joined({code / 10000, ".", code % 10000 / 100, ".", code % 100});
}

/// An open group. Its calls start together when it ends, in no order among themselves, so that a rank may send and receive
/// without deadlock. The functions below take a group: without one they do not compile.
class GroupCall {
 public:
  GroupCall() { check(ncclGroupStart(), "ncclGroupStart"); }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;
  ~GroupCall() {
    if (open_) report(ncclGroupEnd(), "ncclGroupEnd");
  }
  /// Starts the calls. To be called at the end: a group that is left by an exception only closes.
  void end() {
    open_ = false;
    check(ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  bool open_ = true;
};

inline void send(GroupCall&, const void* data, std::size_t bytes, int to, ncclComm_t comm, cudaStream_t stream) {
  check(ncclSend(data, bytes, ncclInt8, to, comm, stream), "ncclSend", comm);
}
inline void receive(GroupCall&, void* data, std::size_t bytes, int from, ncclComm_t comm, cudaStream_t stream) {
  check(ncclRecv(data, bytes, ncclInt8, from, comm, stream), "ncclRecv", comm);
}
inline void broadcast(GroupCall&, const void* in, void* out, std::size_t bytes, int root, ncclComm_t comm, cudaStream_t stream) {
  check(ncclBroadcast(in, out, bytes, ncclInt8, root, comm, stream), "ncclBroadcast", comm);
}
inline void reduce(GroupCall&, const void* in, void* out, std::size_t count, DataType type, Reduction reduction, int root,
                   ncclComm_t comm, cudaStream_t stream) {
  check(ncclReduce(in, out, count, type_of(type), operation_of(reduction), root, comm, stream), "ncclReduce", comm);
}

}  // namespace weft::comm::nccl
