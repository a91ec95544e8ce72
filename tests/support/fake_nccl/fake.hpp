// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test double of the parts of the CUDA runtime and of NCCL that comm::Nccl calls, so that its logic and its errors can be
// tested where there is no GPU. Ranks are threads, a stream is a queue with a thread of its own, device memory is host memory
// that was got by cudaMalloc. It keeps NCCL's rules as its documentation states them and is strict about them: a communicator
// that is not ready takes no call, a collective that some ranks did not start waits until it is aborted, messages of a stream
// follow each other. It says nothing about speed, nor about what a real GPU does.

#include <nccl.h>

namespace fake_nccl {

/// What the machine seems to be.
struct Machine {
  int gpus = 8;
  int driver = 13000, runtime = 13000;
  cudaError_t count = cudaSuccess;  ///< what cudaGetDeviceCount returns
};
Machine& machine();  ///< to be changed while no rank runs

/// Of the calling thread, that is of one rank; each until changed.
struct Faults {
  int version = 0;                          ///< what ncclGetVersion says, if not 0
  ncclResult_t asynchronous = ncclSuccess;  ///< what ncclCommGetAsyncError finds
  bool no_id = false;                       ///< ncclGetUniqueId fails
  bool never_connects = false;              ///< ncclCommInitRankConfig never gets ready
};
Faults& faults();

/// Communicators that were neither destroyed nor aborted.
int alive();
/// Streams and events that were not destroyed.
int streams();
/// Communicators that were aborted so far.
int aborted();
/// Threads that NCCL started: one for each call of a communicator that does not block.
int call_threads();
/// Operations that the calling thread gave to NCCL.
int own_calls();
/// Communicators that were freed while a thread was inside a call of theirs.
int intrusions();
/// Calls of NCCL on streams that are not of the highest priority.
int late_calls();
/// Aborts that waited for kernels which nothing would have ended.
int hung_aborts();

/// A kernel that runs until `release` on this stream.
class Block {
 public:
  explicit Block(cudaStream_t stream);
  void release();
  ~Block() { release(); }

 private:
  struct State;
  State* state_;
};

}  // namespace fake_nccl
