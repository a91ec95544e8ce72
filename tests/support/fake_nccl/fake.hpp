// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test double of the parts of the CUDA runtime and of NCCL that weft calls, so that its logic and its errors can be tested
// without a GPU. Ranks are threads, a stream is a queue with a separate thread, device memory is memory that only streams can
// access. It enforces the rules of CUDA's and NCCL's documentation strictly: a violation is a report, and a program with an
// unexpected report fails. It has no meaning for the speed or the behaviour of a real GPU.
//
//   clocks.hpp     the order of work: races are found from the calls alone
//   memory.hpp     blocks that the host cannot touch, their garbage, and the accesses of tasks
//   scheduler.hpp  streams that start at once, after random delays or as late as possible; waits for a whole GPU
//   room.hpp       the number of kernels that fit on a GPU
//   reports.hpp    the violations found
//   cuda.cpp       the runtime's functions        nccl.cpp    NCCL's

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/fake_nccl/memory.hpp"
#include "support/fake_nccl/reports.hpp"

namespace fake_nccl {

/// The simulated computer.
struct Machine {
  int gpus = 8;
  int driver = 13000, runtime = 13000;
  cudaError_t count = cudaSuccess;            ///< the result of cudaGetDeviceCount
  std::size_t memory = std::size_t(1) << 40;  ///< bytes of each GPU
  int kernels = 8;                            ///< number of NCCL kernels that fit on a GPU; others wait until one ends
  double patience = 3;                        ///< seconds after which a wait for a whole GPU is called a deadlock
};
Machine& machine();  ///< to be changed while no rank runs

/// When streams work. From the environment: WEFT_FAKE_SCHEDULE = eager, lazy or a seed.
struct Schedule {
  enum class Order {
    eager,   ///< at once
    random,  ///< after a while of random length, or at once
    lazy     ///< when something waits for it, or else after half a millisecond
  };
  Order order = Order::random;
  unsigned seed = 1;
  unsigned longest_us = 200;  ///< of random whiles
};
Schedule& schedule();  ///< to be changed while no stream has work
/// Changes it when no stream has work any more: those of ranks that have ended may still record their last events.
void set_schedule(const Schedule& schedule);

/// Faults of the calling thread, that is of one rank; each stays until changed.
struct Faults {
  int version = 0;                          ///< result of ncclGetVersion, if not 0
  ncclResult_t asynchronous = ncclSuccess;  ///< result of ncclCommGetAsyncError
  bool no_id = false;                       ///< ncclGetUniqueId fails
  bool never_connects = false;              ///< ncclCommInitRankConfig never gets ready
};
Faults& faults();

/// Communicators that were neither destroyed nor aborted.
int alive();
/// Streams that were made and not destroyed.
int streams();
/// Communicators that were aborted so far.
int aborted();
/// Threads that NCCL started: one for each call of a communicator that does not block.
int call_threads();
/// Operations that the calling thread gave to NCCL.
int own_calls();
/// Calls of NCCL on streams that are not of the highest priority.
int late_calls();

/// A kernel: its accesses are checked like those of copies and collectives. It accesses device memory through `seen`.
void launch(cudaStream_t stream, std::string name, std::vector<Range> reads, std::vector<Range> writes,
            std::function<void()> run);
template <class T>
T* seen(T* on_device) {
  return static_cast<T*>(seen_by_streams(on_device));
}
/// True if work submitted to the stream now comes after the last writes of these bytes. While it is false, the stream's
/// computation is independent of the communication.
bool waits_for(cudaStream_t stream, const void* written);
/// The number of tasks submitted to the stream so far, including waits for events.
std::uint64_t given(cudaStream_t stream);

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
