// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test double of the parts of the CUDA runtime and of NCCL that weft calls, so that its logic and its errors can be tested
// where there is no GPU. Ranks are threads, a stream is a queue with a thread of its own, device memory is memory that only
// streams can touch. It keeps the rules of CUDA's and NCCL's documentation and is strict about them: what is against them is a
// report, and a program with a report that no test expects fails. It says nothing about speed, nor about what a real GPU does.
//
//   clocks.hpp     which work comes after which: races are found from the calls alone
//   memory.hpp     blocks that the host cannot touch, their garbage, and the accesses of tasks
//   scheduler.hpp  streams that work at once, after random whiles or as late as possible; waits for a whole GPU
//   room.hpp       kernels that a GPU has room for
//   reports.hpp    what was found
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

/// What the machine seems to be.
struct Machine {
  int gpus = 8;
  int driver = 13000, runtime = 13000;
  cudaError_t count = cudaSuccess;            ///< what cudaGetDeviceCount returns
  std::size_t memory = std::size_t(1) << 40;  ///< bytes of each GPU
  int kernels = 8;                            ///< of NCCL's, that a GPU has room for: the others wait until one ends
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

/// A kernel: its accesses are checked as those of copies and collectives are. It sees device memory through `seen`.
void launch(cudaStream_t stream, std::string name, std::vector<Range> reads, std::vector<Range> writes,
            std::function<void()> run);
template <class T>
T* seen(T* on_device) {
  return static_cast<T*>(seen_by_streams(on_device));
}
/// True if what is given to the stream now comes after the last writes of these bytes. A computation is independent of a
/// communication while this is false.
bool waits_for(cudaStream_t stream, const void* written);
/// The number of tasks that the stream was given so far, waits for events among them.
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
